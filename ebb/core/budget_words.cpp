// SPDX-License-Identifier: Apache-2.0
#include "ebb/core/budget_words.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "ebb/core/units.h"
#include "ebb/core/words.h"

namespace ebb {
namespace {

constexpr double kMostPercent = 1e6;

std::optional<double> percent_of(std::string_view word) {
  if (!is_share(word)) return {};
  const std::optional<double> percent = finite_number(word.substr(0, word.size() - 1));
  return percent && *percent > 0 && *percent <= kMostPercent ? percent : std::nullopt;
}

Bytes part_of(double percent, Bytes whole) {
  const double bytes = std::floor(percent / 100 * static_cast<double>(whole));
  return bytes < static_cast<double>(kUnlimited) ? static_cast<Bytes>(bytes) : kUnlimited;
}

// The share that a number without a unit most likely stands for: 5 and 0.05 for 5%.
std::optional<double> meant_percent(std::string_view word) {
  const std::optional<double> number = finite_number(word);
  if (!number || !(*number > 0) || *number > 100) return {};
  return *number < 1 ? 100 * *number : *number;
}

std::string percent_text(double percent) { return format_number(percent) + "%"; }

}  // namespace

bool is_share(std::string_view word) { return word.ends_with('%'); }

Bytes read_budget(std::string_view what, std::string_view word, Bytes whole) {
  if (const std::optional<double> percent = percent_of(word)) return part_of(*percent, whole);
  const auto refuse = [&] {
    fail(ErrorCode::invalid_argument, what, " is '", shown(word),
         "'; it must be bytes such as 64MiB, below 2^63, a share of what keeping everything takes "
         "such as 5%, or unlimited");
  };
  if (is_share(word)) refuse();
  try {
    return parse_bytes(word);
  } catch (const Error&) {
    refuse();
  }
  return 0;
}

std::string least_share(Bytes bytes, Bytes whole) {
  const double exact = 100 * static_cast<double>(bytes) / static_cast<double>(whole);
  const double digit = std::pow(10.0, std::floor(std::log10(std::max(exact, 1e-12))) - 3);
  for (double count = std::floor(exact / digit);; ++count) {
    const std::string text = percent_text(count * digit);
    const std::optional<double> read = finite_number(text.substr(0, text.size() - 1));
    if (read && part_of(*read, whole) >= bytes) return text;
  }
}

Error in_unit_of(std::string_view word, Bytes whole, const Error& refusal) {
  const std::optional<Bytes> least = refusal.least_budget();
  if (!least || whole < 1) return refusal;
  const std::string share = least_share(*least, whole);
  std::string problem(refusal.problem()), remedy(refusal.remedy());
  if (is_share(word)) {
    problem += "; in shares of what keeping everything takes it needs at least " + share;
  } else if (const std::optional<double> percent = meant_percent(word);
             percent && static_cast<double>(part_of(*percent, whole)) > *percent) {
    remedy += remedy.empty() ? "" : "; ";
    remedy += "did you mean " + percent_text(*percent) + " of what keeping everything takes?";
    if (part_of(*percent, whole) < *least) remedy += " The least is " + share;
  }
  return {refusal.code(), problem, least, remedy};
}

}  // namespace ebb
