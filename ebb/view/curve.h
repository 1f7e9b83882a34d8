// SPDX-License-Identifier: Apache-2.0
// Time against budget, for every strategy that can answer a question, with the bound under all of them.
#pragma once

#include "ebb/core/json.h"
#include "ebb/plan/text.h"

namespace ebb {

// {"lines":[{"strategy":"auto","points":[[bytes,seconds],...]},...],"bound":[[bytes,seconds],...],"left_out":["chain",...],"beyond":["store_all"]}: points
// from each strategy's least budget to that of keeping everything, but none beyond 64 times the plan's ("beyond" names those that need
// more) or below a 64th of it. Plans of
// long chains take long to find: where `limit` seconds of this thread's work are not enough, cheap strategies come first, dear ones end
// closer to the plan or are left out; "left_out" names them.
Json budget_curve(const PlanQuestion& question, const Plan& plan, double limit);

}  // namespace ebb
