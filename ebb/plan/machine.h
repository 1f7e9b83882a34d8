// SPDX-License-Identifier: Apache-2.0
// The machine a plan is made for: a platform with the rules of accounting settled. Algorithms plan
// for it, replay judges by it.
#pragma once

#include <optional>

#include "ebb/core/bytes.h"
#include "ebb/plan/platform.h"

namespace ebb {

// A platform with the accounting settled: bytes or slots, what is charged, overlap or not.
struct Machine {
  Platform platform = {};  // platform.fast is the budget
  // Replaces the computed working set by a constant (0: the literature's "convention A").
  std::optional<Bytes> working = {};
  // false: the initial state is the caller's own, always in fast, never charged.
  // true: it starts in `work` alone; a plan that wants it again saves it, and it is charged where
  // it is kept.
  bool start_charged = false;
  // Only states may be kept: no tape outlives the one that is reversed next (the accounting of
  // --slots).
  bool states_only = false;
  // Tapes cannot be copied: they stay where they were recorded until they are reversed.
  bool tapes_stay = false;
  // Every transfer takes its turn on the compute lane.
  bool sync = false;
};

}  // namespace ebb
