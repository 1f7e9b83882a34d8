// SPDX-License-Identifier: Apache-2.0
// NumPy's .npy files. Private.
#pragma once

#include <filesystem>
#include <string_view>

#include "ebb/data/number_array.h"

namespace ebb {

// Versions 1 to 3, of either byte order, in C's or Fortran's order of places, one array a file, of f2
// f4 f8 i1 i2 i4 i8 u1 u2 u4 or bool. `name` is the file's, for messages. The array looks into
// `bytes`. Throws Error(invalid_argument) for anything else.
NumberArray read_npy(std::span<const std::byte> bytes, std::string_view name);

// The same of a file, whose numbers are read from disk as they are used: it may be larger than
// memory. Throws as MappedFile does too.
NumberArray map_npy(const std::filesystem::path& path, std::string_view origin);

}  // namespace ebb
