// SPDX-License-Identifier: Apache-2.0
// How far a run has come, as its callback sees it. How it is shown is the caller's business.
#pragma once

#include <cstdint>

#include "ebb/core/bytes.h"

namespace ebb {

// How far a run is.
struct Progress {
  bool backward = false;
  std::int64_t steps = 0;         // of the sequence; 0 while unknown
  std::int64_t forwards = 0;      // forward steps run so far, repeats included
  std::int64_t all_forwards = 0;  // that the plan will run; 0 while the length is unknown
  std::int64_t reversed = 0;      // steps reversed so far
  double seconds = 0;             // since forward was called, the caller's time between not counted
  Bytes held = 0, budget = 0;     // in fast
};

}  // namespace ebb
