// SPDX-License-Identifier: Apache-2.0
// The fastest plan for a short chain, found by trying everything: a shortest path over the states
// of the machine of replay.h. It shares no code with replay or the algorithms. Time is that of
// `sync`, where every transfer has its turn on the compute lane, so that a state has no clock.
#pragma once

#include <optional>
#include <vector>

#include "ebb/plan/action.h"
#include "ebb/plan/chain.h"
#include "ebb/plan/machine.h"

namespace ebb::test {

// Restrictions beside those of the machine.
struct OracleOptions {
  bool allow_states = true;   // states may be kept in fast and in tiers
  bool allow_tapes = true;    // tapes may be kept beside the one that is reversed next
  bool tapes_restart = true;  // a tape in fast restarts the step after its own
  bool tier_tapes = true;     // tapes may be copied to tiers
};

struct OracleAnswer {
  double seconds = 0;
  std::vector<Action> actions;  // one of the fastest plans, every run and reversal a single step
};

// At most 8 steps without seconds per call and 2 tiers. nullopt: no plan fits.
std::optional<OracleAnswer> oracle(const Chain& chain, const Machine& machine,
                                   const OracleOptions& options = {});

}  // namespace ebb::test
