// SPDX-License-Identifier: Apache-2.0
// Strategy auto: the fastest plan of all other rows.
#pragma once

#include "ebb/plan/rows.h"

namespace ebb {

// self: the row of auto. Throws Error(infeasible_budget) where no row fits.
Plan fastest_plan(const Row& self, const Chain& chain, const Platform& platform,
                  const PlanOptions& options);

}  // namespace ebb
