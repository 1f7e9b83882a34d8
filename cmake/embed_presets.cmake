# SPDX-License-Identifier: Apache-2.0
# Writes the data files FILES into the source OUTPUT that ebb/plan/presets.h declares.
string(REPLACE "|" ";" FILES "${FILES}")
list(SORT FILES)
list(LENGTH FILES count)
set(rows "")
foreach(file IN LISTS FILES)
  cmake_path(GET file STEM name)
  file(READ "${file}" text)
  string(APPEND rows "    {\"${name}\", R\"json(${text})json\"},\n")
endforeach()
file(CONFIGURE OUTPUT "${OUTPUT}" @ONLY CONTENT [[
#include "ebb/plan/presets.h"

#include <array>

namespace ebb {
namespace {

constexpr std::array<PresetFile, @count@> kFiles{{
@rows@}};

}  // namespace

constinit const std::span<const PresetFile> kPresetFiles = kFiles;

}  // namespace ebb
]])
