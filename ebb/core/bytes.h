// SPDX-License-Identifier: Apache-2.0
// Byte counts: the type, its literals, its text form. Who holds the bytes is decided elsewhere.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace ebb {

using Bytes = std::int64_t;

inline constexpr Bytes kUnlimited = std::numeric_limits<Bytes>::max();

// Reads "1024", "1e6", "64KiB", "1.5 GiB", "4GB", "unlimited": decimal and binary units, case
// ignored. Fractions are rounded down to whole bytes. Throws Error(invalid_argument) for anything
// else, for negative values and for 2^63 and more.
Bytes parse_bytes(std::string_view text);

// The shortest text people read: "0 B", "512 B", "1.5 GiB", "unlimited".
std::string format_bytes(Bytes bytes);

// a + b and a * b that stay at kUnlimited instead of overflowing. Arguments are not negative.
Bytes add_bytes(Bytes a, Bytes b);
Bytes scale_bytes(Bytes a, std::int64_t times);

inline namespace literals {
constexpr Bytes operator""_B(unsigned long long n) { return static_cast<Bytes>(n); }
constexpr Bytes operator""_KiB(unsigned long long n) { return static_cast<Bytes>(n) << 10; }
constexpr Bytes operator""_MiB(unsigned long long n) { return static_cast<Bytes>(n) << 20; }
constexpr Bytes operator""_GiB(unsigned long long n) { return static_cast<Bytes>(n) << 30; }
}  // namespace literals

}  // namespace ebb
