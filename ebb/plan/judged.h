// SPDX-License-Identifier: Apache-2.0
// From a row of the table of strategies and a question to a plan: what the row is asked, and what replay says of its draft.
#pragma once

#include "ebb/plan/bound.h"
#include "ebb/plan/rows.h"

namespace ebb {

Problem problem_for(const Row& row, const Chain& chain, const Platform& platform,
                    const PlanOptions& options);

// Whether the row can answer this question at all.
bool can_serve(const Row& row, const Problem& p);

// Throws Error(unavailable) for plans that are too long to predict.
Plan judged(const Row& row, const Problem& p, Draft draft);

// Replay adds up seconds in another order than the bound; what differs by rounding alone is equal.
Bound without_rounding(Bound bound, double seconds);

// Throws Error(infeasible_budget); least: bytes that the row needs.
[[noreturn]] void refuse(const Row& row, const Problem& p, Bytes least);

}  // namespace ebb
