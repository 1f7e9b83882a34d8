// SPDX-License-Identifier: Apache-2.0
// Whether a run can be what its options say, before anything is measured.
#pragma once

#include "ebb/run/run.h"

namespace ebb {

// The options; throws Error(invalid_argument) for those that cannot be.
RunOptions checked(const Step& step, RunOptions options);

}  // namespace ebb
