// SPDX-License-Identifier: Apache-2.0
// Decimal numbers in text, with any standard library.
#pragma once

#include <charconv>

namespace ebb {

// std::from_chars, which some standard libraries have for whole numbers alone.
std::from_chars_result read_decimal(const char* first, const char* last, double& value);

// The same for those libraries, in a locale that writes decimals with a point. Words such as "inf" are no numbers.
std::from_chars_result read_decimal_by_strtod(const char* first, const char* last, double& value);

}  // namespace ebb
