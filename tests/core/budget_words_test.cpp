// SPDX-License-Identifier: Apache-2.0
#include "ebb/core/budget_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "ebb/core/random.h"
#include "tests/message_of.h"

namespace ebb::test::budget_words_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ReadBudget, TakesBytesAndShares) {
  EXPECT_EQ(read_budget("--budget", "64KiB", 1000), 65536);
  EXPECT_EQ(read_budget("--budget", "unlimited", 1000), kUnlimited);
  EXPECT_EQ(read_budget("--budget", "5%", 1000), 50);
  EXPECT_EQ(read_budget("--budget", "0.15%", 1000), 1);
  EXPECT_EQ(read_budget("--budget", "200%", 1000), 2000);
  EXPECT_EQ(read_budget("--budget", "200%", kUnlimited), kUnlimited);
}

TEST(ReadBudget, NamesWhatIsAllowed) {
  for (const char* word : {"", "%", "0%", "-5%", "nan%", "inf%", "5 %", "5%%", "1e7%", "much",
                           "9223372036854775808", "-1"}) {
    EXPECT_THAT(message_of([word] { read_budget("--budget", word, 1000); }),
                AllOf(HasSubstr(std::string("--budget is '") + word + "'; it must be bytes"),
                      HasSubstr("such as 5%"), HasSubstr("unlimited")));
  }
}

TEST(LeastShare, WorksWhenItIsTyped) {
  EXPECT_EQ(least_share(50, 1000), "5%");
  EXPECT_EQ(least_share(1500, 1000), "150%");
  EXPECT_EQ(least_share(1, 3), "33.34%");
  const Random random(1);
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const auto whole = static_cast<Bytes>(1 + random.below(2 * i, 1ULL << (10 + i % 40)));
    const auto bytes =
        static_cast<Bytes>(1 + random.below(2 * i + 1, static_cast<std::uint64_t>(whole)));
    const std::string share = least_share(bytes, whole);
    const Bytes read = read_budget("--budget", share, whole);
    EXPECT_GE(read, bytes) << share << " of " << whole;
    EXPECT_LE(static_cast<double>(read), 1.002 * static_cast<double>(bytes) + 1) << share;
  }
}

std::string refused(const std::string& word, Bytes least, Bytes whole) {
  const Error error(ErrorCode::infeasible_budget, "it does not fit", least, "raise the budget");
  const Error said = in_unit_of(word, whole, error);
  EXPECT_EQ(said.code(), ErrorCode::infeasible_budget);
  EXPECT_EQ(said.least_budget(), least);
  EXPECT_THAT(std::string(said.remedy()), HasSubstr("raise the budget"));
  return said.what();
}

TEST(InUnitOf, GivesAShareForAShare) {
  EXPECT_EQ(refused("1%", 45210, 1'000'000),
            "it does not fit; in shares of what keeping everything takes it needs at least 4.521%; "
            "raise the budget");
  EXPECT_EQ(refused("1KiB", 45210, 1'000'000), "it does not fit; raise the budget");
}

TEST(InUnitOf, AsksWhetherASmallNumberWasAShare) {
  EXPECT_EQ(refused("5", 45210, 1'000'000),
            "it does not fit; raise the budget; did you mean 5% of what keeping everything takes?");
  EXPECT_THAT(refused("0.05", 45210, 1'000'000), HasSubstr("did you mean 5% of"));
  EXPECT_THAT(refused("4", 45210, 1'000'000),
              HasSubstr("did you mean 4% of what keeping everything takes? The least is 4.521%"));
  EXPECT_THAT(refused("500", 45210, 1'000'000), Not(HasSubstr("did you mean")));
  EXPECT_THAT(refused("5B", 45210, 1'000'000), Not(HasSubstr("did you mean")));
  // Where sizes are a few bytes it was one.
  EXPECT_THAT(refused("5", 9, 20), Not(HasSubstr("did you mean")));
}

}  // namespace
}  // namespace ebb::test::budget_words_test
