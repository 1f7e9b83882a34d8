// SPDX-License-Identifier: Apache-2.0
#include "ebb/core/rate.h"

#include <cctype>
#include <cmath>
#include <limits>
#include <string>

#include "ebb/core/bytes.h"
#include "ebb/core/decimal.h"
#include "ebb/core/error.h"

namespace ebb {
namespace {

[[noreturn]] void refuse(std::string_view text) {
  fail(ErrorCode::invalid_argument, "rate: cannot read '", text,
       "'; write bytes a second above 0 with an optional unit, such as 500000, 2.5GB/s, 64MiB/s or "
       "unlimited");
}

}  // namespace

double parse_rate(std::string_view text) {
  std::string_view rest = text;
  if (rest.ends_with("/s")) rest.remove_suffix(2);
  if (rest == "unlimited") return std::numeric_limits<double>::infinity();
  const bool digit_first = !rest.empty() && rest.front() >= '0' && rest.front() <= '9';
  double number = 0;
  const auto [stop, error] = read_decimal(rest.data(), rest.data() + rest.size(), number);
  if (!digit_first || error != std::errc{}) refuse(text);
  rest.remove_prefix(static_cast<std::size_t>(stop - rest.data()));
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  double unit = 1;
  if (!rest.empty()) {
    // A digit here would read as one number with the "1" below.
    if (std::isalpha(static_cast<unsigned char>(rest.front())) == 0) refuse(text);
    try {
      unit = static_cast<double>(parse_bytes("1" + std::string(rest)));
    } catch (const Error&) {
      refuse(text);
    }
  }
  const double rate = number * unit;
  if (!std::isfinite(rate) || rate <= 0) refuse(text);
  return rate;
}

}  // namespace ebb
