// SPDX-License-Identifier: Apache-2.0
// Golden numbers of papers.md 3.2: single, double and d levels over local and remote memory. A
// state and a tape are one unit here, as in the paper's table. Local memory L counts the tape in
// use (working = 1) and, where the paper's T/k counts it, the initial state (working = 2).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/plan/ask.h"
#include "tests/thorough.h"

namespace ebb::test::golden_interval_test {
namespace {

using Lengths = std::vector<std::int64_t>;

PlanOptions local(const std::string& strategy, Bytes units, Bytes working, Lengths intervals = {}) {
  PlanOptions o;
  o.strategy = strategy;
  o.budget = units;
  o.working = working;
  o.intervals = std::move(intervals);
  o.sync = true;
  return o;
}

struct Row {
  std::int64_t units, plain, single, twice, coarse, remote;
};
constexpr Row kRows[] = {{16, 16, 64, 125, 64, 1563},
                         {32, 32, 256, 1'000, 256, 391},
                         {64, 64, 1'024, 9'261, 1'024, 98},
                         {128, 128, 4'096, 74'088, 4'096, 25}};

double per_step(const Plan& plan, std::int64_t n) {
  return static_cast<double>(plan.prediction.forwards) / static_cast<double>(n);
}

// Forwards per step: one per level of checkpoints and one, less k/K + K/T for the chunks that are
// not repeated.
TEST(GoldenInterval, ForwardsPerStep) {
  constexpr std::int64_t n = 4096;
  const Platform remote = with_tiers({slow_tier(1, 1)});
  EXPECT_EQ(plan_for(n, local("store_all", n, 1)).prediction.forwards, n);
  EXPECT_DOUBLE_EQ(per_step(plan_for(n, local("single_local", 128, 1, {64})), n), 2 - 64.0 / n);
  EXPECT_DOUBLE_EQ(per_step(plan_for(n, local("single_remote", 64, 1, {64}), {}, remote), n),
                   2 - 64.0 / n);
  EXPECT_DOUBLE_EQ(per_step(plan_for(n, local("double", 32, 1, {256, 16}), {}, remote), n),
                   3 - 16.0 / 256 - 256.0 / n);
  EXPECT_DOUBLE_EQ(per_step(plan_for(n, local("double_local", 48, 1, {256, 16})), n),
                   3 - 16.0 / 256 - 256.0 / n);
  EXPECT_DOUBLE_EQ(per_step(plan_for(n, local("levels", 32, 1, {512, 64, 8})), n),
                   4 - 8.0 / 64 - 64.0 / 512 - 512.0 / n);
  EXPECT_DOUBLE_EQ(per_step(plan_for(n, local("levels", 32, 1, {1024, 256, 64, 16})), n),
                   5 - 16.0 / 64 - 64.0 / 256 - 256.0 / 1024 - 1024.0 / n);
}

// Binomial inside: 2 + P(K,s)/K.
TEST(GoldenInterval, BinomialInside) {
  constexpr std::int64_t n = 4096, every = 64, slots = 5;
  PlanOptions o = in_slots("levels_binomial", slots);
  o.intervals = {every};
  o.sync = true;
  const Plan plan = plan_for(n, o, {}, with_tiers({slow_tier(0, 0)}));
  EXPECT_EQ(parameter(plan, "slots inside"), slots);
  const auto inside =
      static_cast<double>(plan_for(every, in_slots("revolve", slots)).prediction.advances);
  EXPECT_DOUBLE_EQ(per_step(plan, n), 2 - static_cast<double>(every) / n + inside / every);
  EXPECT_LE(plan.prediction.peak[0], slots);
}

// Local peaks are no larger than the paper's: the last chunk's start is not kept, nor a start that
// is not loaded again.
TEST(GoldenInterval, LocalStates) {
  const Platform remote = with_tiers({slow_tier(1, 1)});
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.units);
    const std::int64_t half = row.units / 2;
    const std::int64_t third = row.units / 3;
    EXPECT_EQ(plan_for(row.plain, local("store_all", row.units, 1)).prediction.peak[0], row.units);
    EXPECT_LE(plan_for(row.single, local("single_local", row.units, 2, {half})).prediction.peak[0],
              row.units);
    EXPECT_LE(plan_for(row.twice, local("double_local", row.units, 2, {third * third, third}))
                  .prediction.peak[0],
              row.units);
    EXPECT_LE(plan_for(100'000, local("single_remote", row.units, 1, {row.units}), {}, remote)
                  .prediction.peak[0],
              row.units);
    EXPECT_LE(plan_for(100'000, local("double", row.units, 1, {half * half, half}), {}, remote)
                  .prediction.peak[0],
              row.units);
  }
}

// Remote states for 10^5 steps. Ours are two fewer: the initial state is the caller's, and the last
// coarse chunk is live when the sweep ends.
TEST(GoldenInterval, RemoteStates) {
  constexpr std::int64_t n = 100'000;
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.units);
    const std::int64_t half = row.units / 2;
    EXPECT_EQ(row.coarse, half * half);
    EXPECT_EQ(row.remote, (n + row.coarse - 1) / row.coarse);
    const Plan plan = plan_for(n, local("double", row.units, 1, {row.coarse, half}), {},
                               with_tiers({slow_tier(1, 1)}));
    EXPECT_EQ(plan.prediction.peak[1], row.remote - 2);
    EXPECT_EQ(plan.prediction.moved[0].written, row.remote - 2);
    EXPECT_EQ(plan.prediction.moved[0].read, row.remote - 2);
  }
}

// The longest chain with one level in fast, by trying all: c chunks of k steps, the last of `rest`.
// While the last chunk is recorded the states before chunks 1..c-2 are kept, while another one is,
// those before it.
std::int64_t longest_single(Bytes room) {
  std::int64_t longest = 0;
  for (std::int64_t k = 1; k <= room + 1; ++k) {
    for (std::int64_t c = 1; c <= room + 3; ++c) {
      for (std::int64_t rest = 1; rest <= k; ++rest) {
        const std::int64_t last = std::max<std::int64_t>(c - 2, 0) + rest - 1;
        const std::int64_t other = c > 1 ? std::max<std::int64_t>(c - 3, 0) + k - 1 : 0;
        if (std::max(last, other) <= room) longest = std::max(longest, (c - 1) * k + rest);
      }
    }
  }
  return longest;
}

TEST(GoldenInterval, LongestChains) {
  for (const Row& row : kRows) {
    if (quick() && row.units > 64) continue;
    SCOPED_TRACE(row.units);
    EXPECT_EQ(largest_steps({}, 0, {}, local("store_all", row.units, 1)), row.plain);
    const std::int64_t single = largest_steps({}, 0, {}, local("single_local", row.units, 2));
    EXPECT_GE(single, row.single);
    EXPECT_EQ(single, longest_single(row.units - 2));
    EXPECT_GE(largest_steps({}, 0, {}, local("double_local", row.units, 2)), row.twice);
    // With remote memory length does not matter.
    const Platform remote = with_tiers({slow_tier(1, 1)});
    EXPECT_EQ(largest_steps({}, 0, remote, local("double", row.units, 1)), kUnlimited);
    EXPECT_EQ(largest_steps({}, 0, remote, local("single_remote", row.units, 1)), kUnlimited);
  }
}

// Double beats single remote iff t_f < (t_w + t_r)(1/L - 4/L^2).
TEST(GoldenInterval, DoubleAgainstSingleRemote) {
  constexpr std::int64_t n = 20'000;
  for (const std::int64_t units : {16, 32, 64}) {
    SCOPED_TRACE(units);
    const auto l = static_cast<double>(units);
    const double threshold = 1 / (1 / l - 4 / (l * l));  // of t_w + t_r, in forwards
    const auto seconds = [&](const std::string& strategy, Lengths intervals, double transfer) {
      return plan_for(n, local(strategy, units, 1, std::move(intervals)), {},
                      with_tiers({slow_tier(transfer / 2, transfer / 2)}))
          .prediction.seconds;
    };
    const std::int64_t half = units / 2;
    for (const double factor : {0.8, 1.25}) {
      const double transfer = factor * threshold;
      const double single = seconds("single_remote", {units}, transfer);
      const double twice = seconds("double", {half * half, half}, transfer);
      EXPECT_EQ(twice < single, factor > 1) << factor;
      // T (t_f (1 + passes) + t_b) + (T/K)(t_w + t_r), less what is not repeated.
      const auto steps = static_cast<double>(n);
      const auto coarse = static_cast<double>(half * half);
      EXPECT_NEAR(single, steps * (4 - l / steps) + steps / l * transfer, 2 * transfer + l);
      EXPECT_NEAR(twice, steps * (5 - 2 / l - coarse / steps) + steps / coarse * transfer,
                  3 * transfer + coarse);
    }
  }
}

}  // namespace
}  // namespace ebb::test::golden_interval_test
