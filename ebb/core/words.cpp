// SPDX-License-Identifier: Apache-2.0
#include "ebb/core/words.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <optional>

#include "ebb/core/decimal.h"
#include "ebb/core/error.h"

namespace ebb {
namespace {

constexpr double kMostSeconds = 1e15;

std::optional<double> decimal(std::string_view word) {
  double number = 0;
  const char* const end = word.data() + word.size();
  const auto [stop, error] = read_decimal(word.data(), end, number);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return number;
}

std::optional<std::int64_t> whole_number(std::string_view word) {
  std::int64_t whole = 0;
  const char* const end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, whole);
  if (error == std::errc{} && stop == end) return whole;
  constexpr double exact =
      9007199254740992.0;  // 2^53: every smaller whole double is that whole number
  const auto number = decimal(word);
  if (!number || !(std::abs(*number) < exact) || *number != std::floor(*number))
    return std::nullopt;
  return static_cast<std::int64_t>(*number);
}

std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t substitute = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substitute, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::optional<double> finite_number(std::string_view word) {
  const auto number = decimal(word);
  return number && std::isfinite(*number) ? number : std::nullopt;
}

double read_number(std::string_view what, std::string_view word) {
  const auto number = finite_number(word);
  if (!number) {
    fail(ErrorCode::invalid_argument, what, " is '", shown(word), "'; it must be a number");
  }
  return *number;
}

std::int64_t read_count(std::string_view what, std::string_view word, std::int64_t least,
                        std::int64_t most) {
  const auto number = whole_number(word);
  if (!number || *number < least || *number > most) {
    fail(ErrorCode::invalid_argument, what, " is '", shown(word),
         "'; it must be a whole number from ", least, " to ", most);
  }
  return *number;
}

std::vector<std::int64_t> read_counts(std::string_view what, std::string_view word,
                                      std::int64_t least, std::int64_t most) {
  std::vector<std::int64_t> numbers;
  for (;;) {
    const std::size_t comma = std::min(word.find(','), word.size());
    numbers.push_back(read_count(what, word.substr(0, comma), least, most));
    if (comma == word.size()) return numbers;
    word.remove_prefix(comma + 1);
  }
}

double read_seconds(std::string_view what, std::string_view word) {
  const auto number = decimal(word);
  if (!number || !(*number >= 0) || *number > kMostSeconds) {
    fail(ErrorCode::invalid_argument, what, " is '", shown(word),
         "'; it must be a number of seconds from 0 to 1e15, such as 0.25 or 3e-6");
  }
  return *number;
}

Bytes read_size(std::string_view what, std::string_view word, Bytes least, Bytes most) {
  Bytes bytes = 0;
  try {
    bytes = parse_bytes(word);
  } catch (const Error&) {
    fail(
        ErrorCode::invalid_argument, what, " is '", shown(word),
        "'; it must be a number of bytes with an optional unit, such as 1024, 64KiB, 1.5GiB or 4GB",
        most == kUnlimited ? ", or unlimited" : "", ", below 2^63 bytes");
  }
  if (bytes < least || bytes > most) {
    fail(ErrorCode::invalid_argument, what, " is '", shown(word), "'; it must be from ", least,
         " to ", most, " bytes");
  }
  return bytes;
}

std::string shown(std::string_view word) {
  constexpr std::size_t most = 60;
  std::string text(word.substr(0, most));
  std::replace_if(
      text.begin(), text.end(),
      [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; }, '?');
  return word.size() > most ? text + "..." : text;
}

std::string nearest(std::string_view word, std::span<const std::string_view> candidates) {
  constexpr std::size_t longest = 40;
  if (word.empty() || word.size() > longest) return "";
  std::string_view best;
  std::size_t least = 2 * (1 + std::min<std::size_t>(word.size() / 3, 3));
  for (const std::string_view candidate : candidates) {
    // Of two at the same distance, the one with the same first letter.
    const std::size_t d =
        2 * distance(word, candidate) + (candidate.starts_with(word.front()) ? 0 : 1);
    if (d > least || (d == least && !best.empty())) continue;
    best = candidate;
    least = d;
  }
  return std::string(best);
}

}  // namespace ebb
