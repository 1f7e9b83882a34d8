// SPDX-License-Identifier: Apache-2.0
// Whether a run's transfers were as fast as its plan assumed. Private to the room; measuring tiers
// beforehand is profile()'s, planning anew the run's.
#pragma once

#include <string>
#include <vector>

#include "ebb/plan/platform.h"
#include "ebb/run/measured.h"

namespace ebb {

struct SpeedRemarks {
  std::vector<std::string> lines;  // one for each direction that was off
  Platform found;                  // with what was measured where it was
};

// Off means slower or faster by more than `factor`, on a tier that takes a part of the run's time
// worth speaking of.
SpeedRemarks compare_speeds(const Platform& assumed, const Measured& measured, double factor);

}  // namespace ebb
