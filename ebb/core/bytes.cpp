// SPDX-License-Identifier: Apache-2.0
#include "ebb/core/bytes.h"

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "ebb/core/error.h"

namespace ebb {
namespace {

struct Unit {
  std::string_view name;
  double bytes;
};

constexpr std::array<Unit, 17> kUnits{{{"", 1},
                                       {"b", 1},
                                       {"k", 1e3},
                                       {"kb", 1e3},
                                       {"kib", 1024.0},
                                       {"m", 1e6},
                                       {"mb", 1e6},
                                       {"mib", 1048576.0},
                                       {"g", 1e9},
                                       {"gb", 1e9},
                                       {"gib", 1073741824.0},
                                       {"t", 1e12},
                                       {"tb", 1e12},
                                       {"tib", 1099511627776.0},
                                       {"p", 1e15},
                                       {"pb", 1e15},
                                       {"pib", 1125899906842624.0}}};

std::string lower_without_spaces(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isspace(byte) == 0) out.push_back(static_cast<char>(std::tolower(byte)));
  }
  return out;
}

}  // namespace

Bytes parse_bytes(std::string_view text) {
  const std::string word = lower_without_spaces(text);
  if (word == "unlimited") return kUnlimited;
  const std::size_t digits = std::min(word.find_first_not_of("0123456789."), word.size());
  const std::string_view number = std::string_view(word).substr(0, digits);
  const std::string_view unit = std::string_view(word).substr(digits);
  const char* const end = number.data() + number.size();
  for (const Unit& u : kUnits) {
    if (u.name != unit || number.empty()) continue;
    std::int64_t whole = 0;
    if (u.bytes == 1 && std::from_chars(number.data(), end, whole).ptr == end &&
        number.size() < 19) {
      return whole;
    }
    double value = 0;
    const auto [stop, error] = std::from_chars(number.data(), end, value);
    if (error != std::errc{} || stop != end) break;
    value = std::floor(value * u.bytes);
    if (value >= 9223372036854775807.0) {
      fail(ErrorCode::invalid_argument, "bytes: '", text,
           "' is too large; at most 2^63-1 bytes, or 'unlimited'");
    }
    return static_cast<Bytes>(value);
  }
  fail(ErrorCode::invalid_argument, "bytes: cannot read '", text,
       "'; write a number with an optional unit, such as 1024, 64KiB, 1.5GiB, 4GB or unlimited");
}

std::string format_bytes(Bytes bytes) {
  if (bytes == kUnlimited) return "unlimited";
  constexpr std::array<const char*, 6> names{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < names.size()) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.4g %s", value, names.at(unit));
  return text.data();
}

Bytes add_bytes(Bytes a, Bytes b) { return a > kUnlimited - b ? kUnlimited : a + b; }

Bytes scale_bytes(Bytes a, std::int64_t times) {
  if (a == 0 || times == 0) return 0;
  return a > kUnlimited / times ? kUnlimited : a * times;
}

}  // namespace ebb
