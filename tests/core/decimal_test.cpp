// SPDX-License-Identifier: Apache-2.0
#include "ebb/core/decimal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <system_error>

namespace ebb::test::decimal_test {
namespace {

TEST(Decimal, BothReadersReadTheSameNumbersUpToTheSamePlace) {
  constexpr std::string_view texts =
      "0|12|1.5|1.5GiB|.5|5.|.||-|-2.25e3x|1e5|1E-5|1e+300|1e|1e+|2e5e6|0x10|1e400|-1e400|1 000| "
      "1|+1|1,5|--1|e5|0.1|123456789012345678901234567890|2.2250738585072011e-308";
  for (std::size_t at = 0; at < texts.size();) {
    const std::size_t end_of = std::min(texts.find('|', at), texts.size());
    const std::string text(texts.substr(at, end_of - at));
    at = end_of + 1;
    double value = -7, other = -7;
    const char* const end = text.data() + text.size();
    const auto found = read_decimal(text.data(), end, value);
    const auto by_strtod = read_decimal_by_strtod(text.data(), end, other);
    EXPECT_EQ(found.ptr - text.data(), by_strtod.ptr - text.data()) << text;
    EXPECT_EQ(found.ec, by_strtod.ec) << text;
    EXPECT_EQ(value, other) << text;
  }
}

TEST(Decimal, WhatIsNoNumberLeavesTheValueAlone) {
  const std::string text = "GiB";
  double value = 3;
  const auto found = read_decimal_by_strtod(text.data(), text.data() + text.size(), value);
  EXPECT_EQ(found.ec, std::errc::invalid_argument);
  EXPECT_EQ(found.ptr, text.data());
  EXPECT_EQ(value, 3);
}

}  // namespace
}  // namespace ebb::test::decimal_test
