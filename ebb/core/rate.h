// SPDX-License-Identifier: Apache-2.0
// Transfer rates as text. What is transferred is decided elsewhere.
#pragma once

#include <string_view>

namespace ebb {

// Bytes a second: a number with an optional byte unit and an optional "/s", such as "0.5",
// "2.5GB/s" or "1e9"; or "unlimited", which is infinity. Fractions are kept. Throws
// Error(invalid_argument) for anything else, for 0, for negative values and for values that are not
// finite.
double parse_rate(std::string_view text);

}  // namespace ebb
