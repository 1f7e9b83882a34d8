// SPDX-License-Identifier: Apache-2.0
#include "ebb/core/bytes.h"

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "ebb/core/decimal.h"
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

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace

Bytes parse_bytes(std::string_view text) {
  const std::string word = lower(trimmed(text));
  if (word == "unlimited") return kUnlimited;
  const char* const end = word.data() + word.size();
  const bool is_number = !word.empty() && (std::isdigit(word.front()) != 0 || word.front() == '.');
  double value = 0;
  const auto number = read_decimal(word.data(), end, value);
  const std::string_view unit = trimmed({number.ptr, static_cast<std::size_t>(end - number.ptr)});
  for (const Unit& u : kUnits) {
    if (u.name != unit || !is_number || number.ec == std::errc::invalid_argument) continue;
    std::int64_t whole = 0;
    const auto exact = std::from_chars(word.data(), end, whole);
    if (u.bytes == 1 && exact.ec == std::errc{} && exact.ptr == number.ptr) return whole;
    value = std::floor(value * u.bytes);
    if (number.ec != std::errc{} || value >= 9223372036854775807.0) {
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
