// SPDX-License-Identifier: Apache-2.0
// `ebb bench double --device cuda`.
#pragma once

#include <iosfwd>
#include <string>

#include "ebb/cli/double_words.h"

namespace ebb {

// Runs the experiment on the device of that number. Throws as a Command.
void answer_device_double(const DoubleWords& words, int device, std::ostream& out,
                          std::ostream& err);

// What is left out, for help.
std::string device_double_defaults();

}  // namespace ebb
