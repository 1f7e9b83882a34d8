// SPDX-License-Identifier: Apache-2.0
// Two runs of the same first steps, compared. Private to verify and to what a run says of its
// codecs.
#pragma once

#include "ebb/run/run.h"
#include "ebb/run/verify.h"

namespace ebb {

// `asked` in a budget as scarce for the first steps as its own for all; `plain` as it is.
Verification compare_runs(Step& step, RunOptions asked, RunOptions plain,
                          std::span<const std::byte> initial, std::int64_t steps);

// Throws Error(invalid_argument) unless the Step's fields lie in its states.
void check_fields(const Step& step);

}  // namespace ebb
