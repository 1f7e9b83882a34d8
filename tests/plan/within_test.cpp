// SPDX-License-Identifier: Apache-2.0
// The least budget that is fast enough.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "ebb/plan/strategies.h"
#include "ebb/plan/words.h"
#include "tests/message_of.h"
#include "tests/plan/ask.h"

namespace ebb::test::within_test {
namespace {

const Chain kChain = Chain::uniform(
    100, {.forward = 1, .record = 1, .backward = 2, .state = 40, .tape = 120, .adjoint = 40});
constexpr double kPlain = 300;

PlanOptions row(const std::string& strategy) {
  PlanOptions options;
  options.strategy = strategy;
  return options;
}

TEST(LeastWithin, IsFastEnoughAndLessIsNot) {
  // A little more time saves much of the memory.
  const std::pair<double, double> shares[] = {{1.0, 1.0}, {1.05, 0.9}, {1.2, 0.5}, {1.5, 0.2}};
  for (const auto& [slowdown, share] : shares) {
    const std::optional<SweepPoint> found =
        least_within(kChain, {}, row("auto"), slowdown * kPlain);
    ASSERT_TRUE(found) << slowdown;
    EXPECT_LE(found->plan.prediction.seconds, slowdown * kPlain);
    EXPECT_LE(static_cast<double>(found->budget),
              share * static_cast<double>(everything_bytes(kChain, {})))
        << slowdown;
    EXPECT_LE(found->plan.prediction.peak.front(), found->budget);
    PlanOptions less = row("auto");
    less.budget = found->budget * 998 / 1000 - 1;
    EXPECT_GT(make_plan(kChain, {}, less).prediction.seconds, slowdown * kPlain) << slowdown;
  }
}

TEST(LeastWithin, IsTheLeastBudgetWhereTimeIsPlenty) {
  const std::optional<SweepPoint> found = least_within(kChain, {}, row("auto"), 1e9);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->budget, least_budget(kChain, {}, row("auto")));
  EXPECT_EQ(least_within(kChain, {}, row("auto"), kPlain)->budget,
            least_budget(kChain, {}, row("store_all")));
}

TEST(LeastWithin, NothingIsFastEnough) {
  EXPECT_FALSE(least_within(kChain, {}, row("auto"), kPlain - 1));
  EXPECT_FALSE(least_within(kChain, {}, row("revolve"), kPlain));
  EXPECT_FALSE(least_within(kChain, {}, row("constant"), 2 * kPlain));
}

TEST(LeastWithin, ATierSavesMemory) {
  const Platform platform = with_tiers({slow_tier(0.5, 0.5)});
  const std::optional<SweepPoint> alone = least_within(kChain, {}, row("auto"), 1.1 * kPlain);
  const std::optional<SweepPoint> tiered =
      least_within(kChain, platform, row("auto"), 1.1 * kPlain);
  ASSERT_TRUE(alone && tiered);
  EXPECT_LT(tiered->budget, alone->budget);
}

TEST(LeastWithin, SlotsAreNoBytes) {
  PlanOptions slots = row("revolve");
  slots.slots = 3;
  EXPECT_THAT(message_of([&] { least_within(kChain, {}, slots, 1000); }),
              ::testing::HasSubstr("leave them out"));
}

TEST(EverythingBytes, IsWhatStoreAllNeeds) {
  EXPECT_EQ(everything_bytes(kChain, {}), least_budget(kChain, {}, row("store_all")));
  PlanOptions options;
  options.working = 7;
  EXPECT_EQ(everything_bytes(kChain, options), 99 * 120 + 7);
  OptionWords words;
  words.budget = "5%";
  EXPECT_EQ(PlanReader().options(words, kChain).budget, everything_bytes(kChain, {}) * 5 / 100);
  words.working = "7";
  EXPECT_EQ(PlanReader().options(words, kChain).budget, (99 * 120 + 7) * 5 / 100);
}

}  // namespace
}  // namespace ebb::test::within_test
