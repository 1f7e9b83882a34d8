// SPDX-License-Identifier: Apache-2.0
// The platform presets (ebb/plan/presets/*.json) as text compiled into the library. Reading it is
// text.cpp's job.
#pragma once

#include <span>

#include "ebb/core/embedded_file.h"

namespace ebb {

// Named without ".json".
extern const std::span<const EmbeddedFile> kPresetFiles;

}  // namespace ebb
