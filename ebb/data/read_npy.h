// SPDX-License-Identifier: Apache-2.0
// NumPy's .npy files. Private.
#pragma once

#include <string_view>

#include "ebb/data/number_array.h"

namespace ebb {

// Versions 1 to 3, little-endian, C order, one array a file, of f4 f8 i1 i2 i4 i8 u1 u2 u4 or
// bool. `name` is the file's, for messages. Throws Error(invalid_argument) for anything else.
NumberArray read_npy(std::span<const std::byte> bytes, std::string_view name);

}  // namespace ebb
