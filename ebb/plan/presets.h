// SPDX-License-Identifier: Apache-2.0
// The platform presets (ebb/plan/presets/*.json) as text compiled into the library. Reading it is
// text.cpp's job.
#pragma once

#include <span>
#include <string_view>

namespace ebb {

struct PresetFile {
  std::string_view name;  // the file's name without ".json"
  std::string_view text;
};

// Sorted by name.
extern const std::span<const PresetFile> kPresetFiles;

}  // namespace ebb
