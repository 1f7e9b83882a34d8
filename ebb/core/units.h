// SPDX-License-Identifier: Apache-2.0
// Numbers as people read them; bytes are in ebb/core/bytes.h.
#pragma once

#include <string>

namespace ebb {

// "0 s", "1.5 ms", "36 s", "7284 s (2 h 1 min)".
std::string format_seconds(double seconds);

// At least four significant digits, and no exponent below 1e9: "2.5", "0.01235", "98765.4",
// "1.2e+12".
std::string format_number(double number);

// 0.125 -> "12.5 %"; "0 %" below half a millionth, "-" for what is not finite.
std::string format_percent(double fraction);

}  // namespace ebb
