// SPDX-License-Identifier: Apache-2.0
// `ebb bench gruslys --device cuda`.
#pragma once

#include <iosfwd>
#include <string>

#include "ebb/cli/gruslys_words.h"

namespace ebb {

// Runs the experiment on the device of that number. Throws as a Command.
void answer_device_gruslys(const GruslysWords& words, int device, std::ostream& out,
                           std::ostream& err);

// What is left out, for help.
std::string device_gruslys_defaults();

}  // namespace ebb
