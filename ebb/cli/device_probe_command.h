// SPDX-License-Identifier: Apache-2.0
// `ebb probe --device cuda`: how fast a GPU's memory, its cache and its way to the host really are.
#pragma once

#include <iosfwd>

#include "ebb/cli/probe_words.h"

namespace ebb {

// Measures the device of that number. Throws as a Command.
void answer_device_probe(const ProbeWords& words, int device, std::ostream& out, std::ostream& err);

}  // namespace ebb
