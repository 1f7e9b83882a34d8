// SPDX-License-Identifier: Apache-2.0
// Plans made of a list of actions, for tests of what is drawn and said of them.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "ebb/plan/plan.h"
#include "tests/plan/vector_cursor.h"

namespace ebb::test {

inline Plan hand_made(const std::vector<Action>& actions, std::vector<Tier> tiers = {}) {
  Plan plan;
  plan.strategy = "hand_made";
  plan.machine.platform.tiers = std::move(tiers);
  plan.prediction.actions = static_cast<std::int64_t>(actions.size());
  plan.set_start([actions] { return std::make_unique<VectorCursor>(actions); });
  return plan;
}

// Revolve for 5 steps and 2 slots, the initial state in one of them: 11 forwards (papers.md 0.4).
inline std::vector<Action> revolve_5_2() {
  return {save(0),       Advance{0, 2},
          save(2),       Advance{2, 4},
          Record{4, 5},  Reverse{4, 5},
          load(2),       Advance{2, 3},
          Record{3, 4},  Reverse{3, 4},
          load(2),       Record{2, 3},
          Reverse{2, 3}, drop_state(2, Place::fast),
          load(0),       Advance{0, 1},
          save(1),       Record{1, 2},
          Reverse{1, 2}, drop_state(1, Place::fast),
          load(0),       Record{0, 1},
          Reverse{0, 1}, drop_state(0, Place::fast)};
}

}  // namespace ebb::test
