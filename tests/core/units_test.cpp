// SPDX-License-Identifier: Apache-2.0
#include "ebb/core/units.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace ebb::test::units_test {
namespace {

TEST(FormatSeconds, IsShort) {
  const std::pair<double, const char*> cases[] = {{0, "0 s"},
                                                  {1.5e-9, "1.5 ns"},
                                                  {2e-6, "2 us"},
                                                  {0.25, "250 ms"},
                                                  {36, "36 s"},
                                                  {119.5, "119.5 s"},
                                                  {7284, "7284 s (2 h 1 min)"},
                                                  {9999.96, "10000.0 s (2 h 47 min)"},
                                                  {1e6, "1000000 s (11 d 13 h)"},
                                                  {1e27, "1e+27 s"}};
  for (const auto& [seconds, text] : cases) EXPECT_EQ(format_seconds(seconds), text);
}

TEST(FormatPercent, IsShort) {
  EXPECT_EQ(format_percent(0.125), "12.5 %");
  EXPECT_EQ(format_percent(1e-12), "0 %");
  EXPECT_EQ(format_percent(std::numeric_limits<double>::infinity()), "-");
  EXPECT_EQ(format_number(2.5), "2.5");
}

}  // namespace
}  // namespace ebb::test::units_test
