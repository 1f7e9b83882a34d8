// SPDX-License-Identifier: Apache-2.0
#include "ebb/core/words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/message_of.h"

namespace ebb::test::words_test {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ReadCount, ReadsWholeNumbers) {
  EXPECT_EQ(read_count("--steps", "0", 0, 10), 0);
  EXPECT_EQ(read_count("--steps", "1e6", 0, 1'000'000'000), 1'000'000);
  EXPECT_EQ(read_count("--steps", "9223372036854775807", 0, kUnlimited), kUnlimited);
}

TEST(ReadCount, NamesOptionValueAndLimits) {
  for (const char* word : {"", "-1", "11", "1.5", "nan", "inf", "-inf", "1e30",
                           "9223372036854775808", "0x5", "5 ", " 5", "five", "1e-3", "--json"}) {
    EXPECT_EQ(message_of([word] { read_count("--steps", word, 0, 10); }),
              std::string("--steps is '") + word + "'; it must be a whole number from 0 to 10");
  }
}

TEST(ReadCounts, SplitsAtCommas) {
  EXPECT_THAT(read_counts("--interval", "30,5,1", 1, 100), ElementsAre(30, 5, 1));
  for (const char* word : {"", ",", "5,", ",5", "5,0", "5;6"}) {
    EXPECT_THAT(message_of([word] { read_counts("--interval", word, 1, 100); }),
                HasSubstr("from 1 to 100"))
        << word;
  }
}

TEST(ReadSeconds, RefusesWhatIsNoTime) {
  EXPECT_EQ(read_seconds("--forward", "2.5e-3"), 2.5e-3);
  EXPECT_EQ(read_seconds("--forward", "0"), 0);
  for (const char* word : {"", "-1", "nan", "inf", "1e16", "1e400", "1s", "0x1"}) {
    EXPECT_THAT(
        message_of([word] { read_seconds("--forward", word); }),
        AllOf(HasSubstr(std::string("--forward is '") + word + "'"), HasSubstr("from 0 to 1e15")));
  }
}

TEST(ReadSize, NamesOptionValueAndLimits) {
  EXPECT_EQ(read_size("--budget", "unlimited", 0, kUnlimited), kUnlimited);
  EXPECT_EQ(read_size("--state", "2KiB", 1, 4096), 2048);
  EXPECT_THAT(message_of([] { read_size("--state", "0", 1, 4096); }),
              HasSubstr("--state is '0'; it must be from 1 to 4096"));
  EXPECT_THAT(message_of([] { read_size("--state", "5KiB", 1, 4096); }),
              HasSubstr("from 1 to 4096 bytes"));
  EXPECT_THAT(message_of([] { read_size("--budget", "9223372036854775808", 0, kUnlimited); }),
              HasSubstr("2^63"));
  EXPECT_THAT(message_of([] { read_size("--budget", "much", 0, kUnlimited); }),
              HasSubstr("--budget is 'much'"));
}

TEST(Shown, IsShortAndPrintable) {
  EXPECT_EQ(shown("a\x1b[31mb\n"), "a?[31mb?");
  EXPECT_EQ(shown(std::string(1000, 'x')), std::string(60, 'x') + "...");
}

TEST(Nearest, FindsTypingMistakesOnly) {
  const std::vector<std::string_view> names = {"revolve", "h_revolve", "store_all", "ism"};
  EXPECT_EQ(nearest("revolv", names), "revolve");
  EXPECT_EQ(nearest("hrevolve", names), "h_revolve");
  EXPECT_EQ(nearest("storeall", names), "store_all");
  EXPECT_EQ(nearest("banana", names), "");
  EXPECT_EQ(nearest(std::string(1'000'000, 'x'), names), "");
}

}  // namespace
}  // namespace ebb::test::words_test
