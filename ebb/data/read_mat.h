// SPDX-License-Identifier: Apache-2.0
// MATLAB's files of version 5 (save -v6 and -v7). Private.
#pragma once

#include <string_view>

#include "ebb/data/number_array.h"

namespace ebb {

// The numbers of one variable, first index fastest, in the type that they are stored in, which may
// be smaller than the variable's own. `name` is the file's, for messages. Throws
// Error(invalid_argument) for a file that is damaged, big-endian or of another version, and a
// variable that is not there or not a full array of real numbers; Error(unavailable) as inflated()
// does. Other variables may be anything.
NumberArray read_mat(std::span<const std::byte> bytes, std::string_view name,
                     std::string_view variable);

}  // namespace ebb
