// SPDX-License-Identifier: Apache-2.0
#include "ebb/core/rate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>

#include "ebb/core/error.h"

namespace ebb::test::rate_test {
namespace {

TEST(ParseRate, ReadsNumbersUnitsAndFractions) {
  const std::pair<const char*, double> cases[] = {
      {"1", 1},           {"0.5", 0.5},         {"0.5/s", 0.5},
      {"2.5GB/s", 2.5e9}, {"2.5 GB/s", 2.5e9},  {"64MiB", 67108864},
      {"1e9", 1e9},       {"1e-3KiB/s", 1.024}, {"9223372036854775808", 9223372036854775808.0}};
  for (const auto& [text, rate] : cases) EXPECT_DOUBLE_EQ(parse_rate(text), rate) << text;
  EXPECT_TRUE(std::isinf(parse_rate("unlimited")));
}

TEST(ParseRate, RefusesEverythingElseAndSaysWhatIsAllowed) {
  for (const char* text :
       {"", "0", "0GB/s", "-1", "+1", "nan", "inf", "/s", "GB/s", "1e400", "1e308GB", "1e5.5KiB",
        "1 2", "0x10", "1unlimited", "5/m", ".5", "1e-320KiB/s/s"}) {
    try {
      parse_rate(text);
      FAIL() << "accepted '" << text << "'";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace ebb::test::rate_test
