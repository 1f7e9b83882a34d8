// SPDX-License-Identifier: Apache-2.0
// Plans already made in this process, by their inputs: runs that are made again plan once.
#pragma once

#include <memory>

#include "ebb/plan/plan.h"
#include "ebb/plan/strategies.h"

namespace ebb {

// As make_plan. Safe to call from several threads. Keeps the last few.
std::shared_ptr<const Plan> cached_plan(const Chain& chain, const Platform& platform,
                                        const PlanOptions& options);
// How many of them were not made anew, so far.
std::int64_t cached_plan_hits();

}  // namespace ebb
