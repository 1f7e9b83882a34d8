// SPDX-License-Identifier: Apache-2.0
// `ebb bench async --device cuda`.
#pragma once

#include <iosfwd>
#include <string>

#include "ebb/cli/async_words.h"

namespace ebb {

// Runs the experiment on the device of that number. Throws as a Command.
void answer_device_async(const AsyncWords& words, int device, std::ostream& out, std::ostream& err);

// What is left out, for help.
std::string device_async_defaults();

}  // namespace ebb
