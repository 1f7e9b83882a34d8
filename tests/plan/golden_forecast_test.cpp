// SPDX-License-Identifier: Apache-2.0
// Closed forms where a replay would be too long, and against replay where it is not. papers.md
// 0.1, 1.2.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "ebb/plan/binomial.h"
#include "ebb/plan/draft.h"
#include "ebb/plan/replay.h"
#include "tests/plan/ask.h"
#include "tests/plan/same.h"

namespace ebb::test::golden_forecast_test {
namespace {

// beta(s,r) for values that fit, by multiplication from one side.
std::int64_t choose(std::int64_t s, std::int64_t r) {
  std::int64_t value = 1;
  for (std::int64_t i = 1; i <= r; ++i) value = value * (s + i) / i;
  return value;
}

// P(l,s) = r l - beta(s+1,r-1)
std::int64_t advances(std::int64_t l, std::int64_t s) {
  std::int64_t r = 0;
  while (choose(s, r) < l) ++r;
  return r * l - choose(s + 1, r - 1);
}

TEST(GoldenForecast, ABillionSteps) {
  constexpr std::int64_t n = 1'000'000'000;
  for (const std::int64_t s : {4, 5, 10, 100, 1000, 4000}) {
    SCOPED_TRACE(s);
    const Plan plan = plan_for(n, in_slots("revolve", s));
    EXPECT_EQ(plan.prediction.records, n);
    EXPECT_EQ(plan.prediction.advances, advances(n, s));
    EXPECT_EQ(plan.prediction.forwards, n + advances(n, s));
    EXPECT_DOUBLE_EQ(plan.prediction.seconds, static_cast<double>(3 * n + advances(n, s)));
    EXPECT_EQ(plan.prediction.peak[0], s);
    EXPECT_LT(plan.gap(), 1e-9);
    Action action;
    EXPECT_TRUE(plan.cursor()->next(action));
  }
  // One slot: n(n+1)/2 forwards, near the end of 64 bits.
  EXPECT_EQ(forwards(n, in_slots("constant", 1)), n / 2 * (n + 1));
  EXPECT_EQ(forwards(n, in_slots("revolve", 1)), n / 2 * (n + 1));
  EXPECT_EQ(binomial_advances(3 * n, 1), 3 * n / 2 * (3 * n - 1));
}

TEST(GoldenForecast, PlansJustPastTheLongestReplayAreTheClosedForm) {
  constexpr std::int64_t n = 4'000'001;
  const Plan plan = plan_for(n, with_extra("hsm", 19));
  EXPECT_EQ(plan.prediction.advances, advances(n, 20));
}

// C(t,m) <= m t^(1+1/m); the largest ratio is 0.75, at m = 1, t = 2.
TEST(GoldenForecast, GruslysUpperBound) {
  double largest = 0;
  for (std::int64_t m = 1; m <= 61; ++m) {
    for (std::int64_t t = 2; t <= 1000; ++t) {
      const auto cost = static_cast<double>(t + binomial_advances(t, m));
      const auto slots = static_cast<double>(m);
      const double limit = slots * std::pow(static_cast<double>(t), 1 + 1 / slots);
      ASSERT_LE(cost, limit) << t << " steps, " << m << " slots";
      largest = std::max(largest, cost / limit);
    }
  }
  EXPECT_NEAR(largest, 0.75, 1e-12);
  for (const std::int64_t m : {1, 2, 3, 7, 20, 61}) {
    for (const std::int64_t t : {2, 10, 99, 1000}) {
      const auto slots = static_cast<double>(m);
      EXPECT_LE(static_cast<double>(forwards(t, with_extra("hsm", m - 1))),
                slots * std::pow(static_cast<double>(t), 1 + 1 / slots));
    }
  }
}

using Drafter = Draft (*)(const Problem&);

void expect_forecast(Drafter drafter, const Chain& chain, const Machine& machine) {
  const PlanOptions options;
  const Problem problem{chain, machine, options, chain.typical()};
  const Draft draft = drafter(problem);
  const Prediction forecast = forecast_hsm(problem, draft.parameters.front().second);
  const Prediction replayed = replay(chain, machine, *draft.start());
  expect_same_counts(forecast, replayed);
  EXPECT_DOUBLE_EQ(forecast.seconds, replayed.seconds);
}

TEST(GoldenForecast, IsWhatReplayFinds) {
  const StepCost step{.forward = 1,
                      .record = 1.5,
                      .backward = 2.25,
                      .state = 3,
                      .tape = 7,
                      .adjoint = 2,
                      .scratch = 5};
  for (std::int64_t n = 1; n <= 60; ++n) {
    for (std::int64_t s = 1; s <= 9; ++s) {
      SCOPED_TRACE(std::to_string(n) + " steps, " + std::to_string(s) + " slots");
      const Chain chain = Chain::uniform(n, step, 0.5);
      Machine bytes;
      bytes.platform = with_tiers({slow_tier(1, 1)});
      bytes.platform.fast = 3 + 7 + 2 + 5 + 3 * (s - 1);
      bytes.platform.copy_rate = 16;
      expect_forecast(draft_hsm, chain, bytes);
      expect_forecast(draft_constant, chain, bytes);
      Machine slots;
      slots.working = 0;
      slots.start_charged = slots.states_only = true;
      slots.platform.fast = 3 * s;
      slots.platform.copy_rate = 16;
      expect_forecast(draft_hsm, chain, slots);
      expect_forecast(draft_constant, chain, slots);
      if (testing::Test::HasFailure()) return;
    }
  }
}

// Times of plans are those of the closed form, whatever the costs.
TEST(GoldenForecast, SecondsOfRevolve) {
  const StepCost step{.forward = 2, .record = 3, .backward = 5};
  for (const std::int64_t n : {1, 2, 17, 100, 1000}) {
    for (const std::int64_t s : {1, 2, 5, 30}) {
      const std::int64_t again = n == 1 ? 0 : advances(n, s);
      EXPECT_EQ(plan_for(n, in_slots("revolve", s), step).prediction.seconds,
                static_cast<double>(8 * n + 2 * again));
    }
  }
}

}  // namespace
}  // namespace ebb::test::golden_forecast_test
