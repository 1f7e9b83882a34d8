// SPDX-License-Identifier: Apache-2.0
// Plans that leave out some of a platform's tiers, as a run needs them once a tier has failed.
#pragma once

#include <memory>
#include <vector>

#include "ebb/plan/plan.h"
#include "ebb/plan/strategies.h"

namespace ebb {

// The plan for the tiers k whose left_out[k] is false. All tiers keep their numbers in its actions and
// its prediction. Throws like make_plan.
std::shared_ptr<const Plan> plan_without(const Chain& chain, const Platform& platform,
                                         const std::vector<bool>& left_out,
                                         const PlanOptions& options);

}  // namespace ebb
