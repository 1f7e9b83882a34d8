// SPDX-License-Identifier: Apache-2.0
// One plan, measured as the other packages are: planned and all its actions counted, in one
// process.
#pragma once

#include "bench/measure.h"

namespace ebb::bench {

// The words after `plan_bench one`. Prints one JSON object; returns the exit status.
int plan_one(int argc, char** argv);

}  // namespace ebb::bench
