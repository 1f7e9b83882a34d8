// SPDX-License-Identifier: Apache-2.0
// The clock that runs and measurements read. What the seconds are since says nothing.
#pragma once

#include <chrono>

namespace ebb {

inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace ebb
