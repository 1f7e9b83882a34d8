// SPDX-License-Identifier: Apache-2.0
#include "ebb/core/units.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>

namespace ebb {
namespace {

std::string printed(const char* format, double number) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, number);
  return text.data();
}

// Whole days, hours and minutes, the two largest that are not zero.
std::string in_words(double seconds) {
  constexpr double minute = 60;
  auto minutes = static_cast<std::int64_t>(std::llround(seconds / minute));
  const std::int64_t days = minutes / 1440;
  const std::int64_t hours = minutes % 1440 / 60;
  minutes %= 60;
  if (days >= 100) return std::to_string(days) + " d";
  if (days > 0) return std::to_string(days) + " d " + std::to_string(hours) + " h";
  if (hours > 0) return std::to_string(hours) + " h " + std::to_string(minutes) + " min";
  return std::to_string(minutes) + " min";
}

}  // namespace

std::string format_seconds(double seconds) {
  if (!std::isfinite(seconds)) return "-";
  if (seconds == 0) return "0 s";
  if (seconds < 1e-6) return printed("%.4g ns", seconds * 1e9);
  if (seconds < 1e-3) return printed("%.4g us", seconds * 1e6);
  if (seconds < 1) return printed("%.4g ms", seconds * 1e3);
  const std::string plain = format_number(seconds) + " s";
  constexpr double beyond_calendars = 1e12;
  return seconds < 120 || seconds > beyond_calendars ? plain
                                                     : plain + " (" + in_words(seconds) + ")";
}

std::string format_number(double number) {
  if (!std::isfinite(number)) return "-";
  if (std::abs(number) >= 1e9) return printed("%.4g", number);
  if (std::abs(number) >= 1e3)
    return printed(number == std::floor(number) ? "%.0f" : "%.1f", number);
  return printed("%.4g", number);
}

std::string format_percent(double fraction) {
  constexpr double invisible = 5e-7;
  if (!std::isfinite(fraction)) return "-";
  return printed("%.3g", std::abs(fraction) < invisible ? 0 : fraction * 100) + " %";
}

}  // namespace ebb
