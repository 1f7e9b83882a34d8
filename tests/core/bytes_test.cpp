// SPDX-License-Identifier: Apache-2.0
#include "ebb/core/bytes.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "ebb/core/error.h"

namespace ebb::test::bytes_test {
namespace {

TEST(ParseBytes, ReadsNumbersWithDecimalAndBinaryUnits) {
  const std::pair<const char*, Bytes> cases[] = {
      {"0", 0},
      {"1024", 1024},
      {"64KiB", 65536},
      {"64 kib", 65536},
      {"1.5GiB", 1610612736},
      {" 4GB ", 4000000000},
      {"4g", 4000000000},
      {"2TiB", Bytes{2} << 40},
      {"1PB", 1000000000000000},
      {"9007199254740993", 9007199254740993},
      {"unlimited", kUnlimited},
  };
  for (const auto& [text, bytes] : cases) EXPECT_EQ(parse_bytes(text), bytes) << text;
}

TEST(ParseBytes, RoundsFractionsDown) {
  EXPECT_EQ(parse_bytes("1.9"), 1);
  EXPECT_EQ(parse_bytes("0.0015kB"), 1);
}

TEST(ParseBytes, ReadsExponentsAndTheLargestNumberThereIs) {
  EXPECT_EQ(parse_bytes("1e3"), 1000);
  EXPECT_EQ(parse_bytes("1.5e3KiB"), 1536000);
  EXPECT_EQ(parse_bytes("9223372036854775807"), kUnlimited);
  EXPECT_EQ(parse_bytes("9223372036854775806"), kUnlimited - 1);
}

TEST(ParseBytes, RefusesEverythingElseAndSaysWhatIsAllowed) {
  for (const char* text :
       {"", "KiB", "-1", "+1", "1e", "1e400", "nan", "inf", "12 bananas", "1.2.3", "0x10",
        "9223372036854775808", "16777216TiB", "1KiBKiB", "1 2", "5\n6"}) {
    try {
      parse_bytes(text);
      FAIL() << "accepted '" << text << "'";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  }
}

TEST(FormatBytes, IsShort) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(3_GiB), "3 GiB");
  EXPECT_EQ(format_bytes(kUnlimited), "unlimited");
}

TEST(FormatBytes, ReadsBackWithinItsFourDigits) {
  for (Bytes bytes = 1; bytes < Bytes{1} << 59; bytes = bytes * 7 / 2 + 1) {
    const auto exact = static_cast<double>(bytes);
    EXPECT_NEAR(static_cast<double>(parse_bytes(format_bytes(bytes))), exact, exact * 5e-4 + 1);
  }
}

TEST(BytesArithmetic, StaysAtUnlimitedInsteadOfOverflowing) {
  EXPECT_EQ(add_bytes(2, 3), 5);
  EXPECT_EQ(add_bytes(kUnlimited, 1), kUnlimited);
  EXPECT_EQ(add_bytes(kUnlimited - 1, 1), kUnlimited);
  EXPECT_EQ(scale_bytes(3, 5), 15);
  EXPECT_EQ(scale_bytes(0, 5), 0);
  EXPECT_EQ(scale_bytes(1_GiB, 1'000'000'000'000), kUnlimited);
}

TEST(BytesLiterals, AreBinary) {
  EXPECT_EQ(7_B, 7);
  EXPECT_EQ(64_KiB, 65536);
  EXPECT_EQ(2_MiB, 2097152);
  EXPECT_EQ(1_GiB, 1073741824);
}

}  // namespace
}  // namespace ebb::test::bytes_test
