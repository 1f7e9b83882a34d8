// SPDX-License-Identifier: Apache-2.0
// A lower bound on the time of any exact plan. Proofs: docs/planning.md, "The bound".
#pragma once

#include "ebb/plan/chain.h"
#include "ebb/plan/machine.h"
#include "ebb/plan/plan.h"

namespace ebb {

// O(tiers * log) time for uniform chains, O(N log N) for others.
Bound bound(const Chain& chain, const Machine& machine);

}  // namespace ebb
