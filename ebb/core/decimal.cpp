// SPDX-License-Identifier: Apache-2.0
#include "ebb/core/decimal.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <version>

namespace ebb {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The end of [-]digits[.digits][e[+-]digits]; first, where no number begins.
const char* decimal_end(const char* first, const char* last) {
  const char* at = first;
  const auto skip = [&at, last](auto... any) {
    if (at == last || !((*at == any) || ...)) return false;
    ++at;
    return true;
  };
  const auto skip_digits = [&at, last] {
    const char* const from = at;
    at = std::find_if_not(at, last, is_digit);
    return at > from;
  };
  skip('-');
  bool digits = skip_digits();
  if (skip('.')) digits = skip_digits() || digits;
  if (!digits) return first;
  const char* const end = at;
  if (!skip('e', 'E')) return end;
  skip('+', '-');
  return skip_digits() ? at : end;
}

}  // namespace

std::from_chars_result read_decimal(const char* first, const char* last, double& value) {
#ifdef __cpp_lib_to_chars
  return std::from_chars(first, last, value);
#else  // WebAssembly's, whose only locale has a point
  return read_decimal_by_strtod(first, last, value);
#endif
}

std::from_chars_result read_decimal_by_strtod(const char* first, const char* last, double& value) {
  const char* const end = decimal_end(first, last);
  if (end == first) return {first, std::errc::invalid_argument};
  const double read = std::strtod(std::string(first, end).c_str(), nullptr);
  if (std::isinf(read)) return {end, std::errc::result_out_of_range};
  value = read;
  return {end, std::errc{}};
}

}  // namespace ebb
