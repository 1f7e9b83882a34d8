// SPDX-License-Identifier: Apache-2.0
// What strategies promise beside their numbers: async is flat in the length, options are respected,
// budgets are used, the planner's questions agree with one another.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ebb/core/error.h"
#include "ebb/plan/replay.h"
#include "tests/plan/ask.h"
#include "tests/thorough.h"

namespace ebb::test::behaviour_test {
namespace {

double seconds_per_step(std::int64_t n, const PlanOptions& o, const StepCost& step,
                        double transfer) {
  const Plan plan = plan_for(n, o, step, with_tiers({slow_tier(transfer, transfer)}));
  return plan.prediction.seconds / static_cast<double>(n);
}

PlanOptions in_bytes(const std::string& strategy, Bytes budget) {
  PlanOptions o;
  o.strategy = strategy;
  o.budget = budget;
  return o;
}

constexpr StepCost kStep{
    .forward = 1, .record = 1, .backward = 2, .state = 4, .tape = 12, .adjoint = 4};

// 20 states of room beside the working set of 20 bytes; 8 slots.
TEST(SlowAsync, TimePerStepIsFlatInTheLength) {
  const auto expect_flat = [](const PlanOptions& o, double transfer) {
    const double million = seconds_per_step(1'000'000, o, kStep, transfer);
    EXPECT_NEAR(seconds_per_step(10'000, o, kStep, transfer), million, 0.01 * million);
    EXPECT_NEAR(seconds_per_step(1000, o, kStep, transfer), million, 0.05 * million);
  };
  expect_flat(in_bytes("async", 20 + 80), 30);
  expect_flat(in_slots("async", 8), 10);
}

TEST(Async, RevolveIsNotFlat) {
  const PlanOptions revolve = in_slots("revolve", 8);
  EXPECT_GT(plan_for(100'000, revolve).prediction.seconds,
            12 * plan_for(10'000, revolve).prediction.seconds);
  const PlanOptions async = in_slots("async", 8);
  for (const double transfer : {2.0, 10.0}) {
    EXPECT_NEAR(seconds_per_step(3000, async, {}, transfer),
                seconds_per_step(30'000, async, {}, transfer), 0.05);
  }
}

// As those of a framework's graphs: no plan moves a tape, and replay would not let it.
TEST(Tapes, StayWhereTheyMust) {
  const Platform platform = with_tiers({slow_tier(0.1, 0.1)});
  const Chain chain = Chain::uniform(60, kStep);
  const auto moves_tapes = [&](const Plan& plan) {
    const auto cursor = plan.cursor();
    for (Action action = Advance{0, 0}; cursor->next(action);) {
      const auto* const copy = std::get_if<Copy>(&action);
      if (copy != nullptr && copy->item == Item::tape) return true;
    }
    return false;
  };
  PlanOptions how = in_bytes("pofo", 80);
  const Plan free = make_plan(chain, platform, how);
  ASSERT_TRUE(moves_tapes(free));
  how.tapes_stay = true;
  for (const char* strategy : {"pofo", "auto"}) {
    how.strategy = strategy;
    EXPECT_FALSE(moves_tapes(make_plan(chain, platform, how)));
  }
  Machine machine = free.machine;
  machine.tapes_stay = true;
  const auto cursor = free.cursor();
  EXPECT_THROW(replay(chain, machine, *cursor), Error);
}

// Ten times slower compute and transfers: the same plan, ten times the seconds.
TEST(Async, DependsOnTheRatioOfComputeToTransferAlone) {
  const StepCost slower{
      .forward = 10, .record = 10, .backward = 20, .state = 4, .tape = 12, .adjoint = 4};
  for (const std::int64_t n : {40, 333, 10'000}) {
    for (const double transfer : {0.5, 4.0, 25.0}) {
      const PlanOptions o = in_bytes("async", 20 + 40);
      const Plan plan = plan_for(n, o, kStep, with_tiers({slow_tier(transfer, 2 * transfer)}));
      const Plan scaled =
          plan_for(n, o, slower, with_tiers({slow_tier(10 * transfer, 20 * transfer)}));
      EXPECT_EQ(plan.parameters, scaled.parameters);
      EXPECT_EQ(plan.prediction.forwards, scaled.prediction.forwards);
      EXPECT_EQ(plan.prediction.actions, scaled.prediction.actions);
      EXPECT_NEAR(scaled.prediction.seconds, 10 * plan.prediction.seconds,
                  1e-9 * scaled.prediction.seconds);
    }
  }
}

// The sweep over the ratio: time per step never falls as transfers get slower.
TEST(Async, SlowerTransfersCostMore) {
  const PlanOptions o = in_slots("async", 6);
  double before = 0;
  for (const double transfer : {0.0, 1.0, 4.0, 16.0, 64.0}) {
    const double now = seconds_per_step(10'000, o, {}, transfer);
    EXPECT_GE(now, 0.999 * before) << transfer;
    before = now;
  }
}

std::int64_t revolve_advances(std::int64_t n, std::int64_t s) {
  return plan_for(n, in_slots("revolve", s)).prediction.advances;
}

// Every remainder: what is left over is reversed without a re-run, whole intervals with s slots.
// Tapes heavier than the budget keep the tail short (golden_stream_test.cpp).
TEST(Async, AnyRemainder) {
  constexpr std::int64_t slots = 3;
  for (const std::int64_t every : {1, 2, 7, 10}) {
    for (std::int64_t n = 1; n <= 60; ++n) {
      PlanOptions o = in_slots("async", slots);
      o.intervals = {every};
      const Plan plan = plan_for(n, o, {.tape = 1000}, with_tiers({slow_tier(0, 0)}));
      EXPECT_EQ(parameter(plan, "every"), std::min(every, n));
      EXPECT_EQ(plan.prediction.records, n);
      const std::int64_t last = (n - 1) % every + 1;
      const std::int64_t model = n - last + (n - last) / every * revolve_advances(every, slots) +
                                 revolve_advances(last, slots);
      EXPECT_LE(plan.prediction.advances, model) << n << " steps, interval " << every;
      if (n <= 48) continue;  // short chains are searched for a better tail
      EXPECT_EQ(plan.prediction.advances, model) << n << " steps, interval " << every;
    }
  }
}

// Steps of a chain that nested intervals run, counted one by one: [a,b) from a live state a at
// level `level`.
std::int64_t steps_run(std::int64_t a, std::int64_t b, const std::vector<std::int64_t>& every,
                       std::size_t level) {
  while (level < every.size() && b - a <= every[level]) ++level;
  if (level == every.size()) return b - a;
  std::int64_t run = 0;
  std::vector<std::int64_t> starts;
  for (std::int64_t at = a; at < b; at += every[level]) starts.push_back(at);
  run += starts.back() - a;  // the sweep to the last chunk, which goes on from there
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::int64_t end = i + 1 < starts.size() ? starts[i + 1] : b;
    run += steps_run(starts[i], end, every, level + 1);
  }
  return run;
}

TEST(Double, EveryRemainder) {
  const std::vector<std::vector<std::int64_t>> pairs = {{12, 5}, {16, 4}, {7, 3},
                                                        {10, 9}, {2, 1},  {50, 7}};
  for (const auto& intervals : pairs) {
    for (std::int64_t n = 1; n <= 60; ++n) {
      SCOPED_TRACE(std::to_string(n) + " steps in " + std::to_string(intervals[0]) + " and " +
                   std::to_string(intervals[1]));
      PlanOptions o = in_bytes("double_local", 10'000);
      o.intervals = intervals;
      const Plan local = plan_for(n, o, kStep);
      EXPECT_EQ(local.prediction.forwards, steps_run(0, n, intervals, 0));
      // As little fast memory as the remote reading needs.
      o.strategy = "double";
      const Platform platform = with_tiers({slow_tier(1, 1)});
      o.budget = least_budget(Chain::uniform(n, kStep), platform, o);
      const Plan remote = plan_for(n, o, kStep, platform);
      EXPECT_EQ(remote.prediction.forwards, steps_run(0, n, intervals, 0));
      EXPECT_LE(remote.prediction.peak[0], local.prediction.peak[0]);
    }
  }
}

// Where states are copied to, for each place: given intervals are kept.
std::map<int, std::vector<std::int64_t>> kept_states(const Plan& plan) {
  std::map<int, std::vector<std::int64_t>> kept;
  for (const Action& action : actions_of(plan)) {
    const Copy* const copy = std::get_if<Copy>(&action);
    if (copy != nullptr && copy->to != Place::work) kept[copy->to.id].push_back(copy->step);
  }
  return kept;
}

TEST(Options, GivenIntervalsAreKept) {
  const Platform platform = with_tiers({slow_tier(3, 3)});
  PlanOptions o = in_bytes("double", 0);
  o.intervals = {20, 5};
  o.budget = least_budget(Chain::uniform(107, kStep), platform, o);
  const auto twice = kept_states(plan_for(107, o, kStep, platform));
  ASSERT_TRUE(twice.contains(Place::slow(0).id));
  for (const std::int64_t step : twice.at(Place::slow(0).id)) EXPECT_EQ(step % 20, 0);
  for (const std::int64_t step : twice.at(Place::fast.id)) EXPECT_EQ(step % 5, 0);

  o = in_bytes("single_remote", 20 + 120);
  o.intervals = {9};
  const auto single = kept_states(plan_for(107, o, kStep, platform));
  for (const std::int64_t step : single.at(Place::slow(0).id)) EXPECT_EQ(step % 9, 0);
  EXPECT_FALSE(single.contains(Place::fast.id));

  o = in_bytes("async", 20 + 40);
  o.intervals = {13};
  const Plan stream = plan_for(200, o, kStep, platform);
  EXPECT_EQ(parameter(stream, "every"), 13);
  const auto streamed = kept_states(stream);
  for (const std::int64_t step : streamed.at(Place::slow(0).id)) EXPECT_EQ(step % 13, 0);

  o = in_slots("periodic_disk", 3);
  o.period = 17;
  const auto periodic = kept_states(plan_for(100, o, kStep, platform));
  for (const std::int64_t step : periodic.at(Place::slow(0).id)) EXPECT_EQ(step % 17, 0);

  o = in_bytes("sqrt", 10'000);
  o.intervals = {8};
  EXPECT_EQ(parameter(plan_for(100, o, kStep), "every in fast"), 8);
}

bool fits(std::int64_t n, const PlanOptions& o, const Platform& platform = {}) {
  try {
    plan_for(n, o, kStep, platform);
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::infeasible_budget) << error.what();
    return false;
  }
}

TEST(Questions, LargestStepsAndLeastBudgetAgree) {
  const Platform small = with_tiers({slow_tier(1, 1, 5 * kStep.state)});
  for (const std::string strategy :
       {"store_all", "sqrt", "single_local", "double_local", "single_remote", "double"}) {
    for (const Bytes budget : {20, 33, 60}) {
      if (quick() && budget == 60) continue;
      SCOPED_TRACE(strategy + " " + std::to_string(budget));
      const PlanOptions o = in_bytes(strategy, budget);
      const std::int64_t largest = largest_steps(kStep, 0, small, o);
      ASSERT_NE(largest, kUnlimited);
      EXPECT_TRUE(largest == 0 || fits(largest, o, small));
      EXPECT_FALSE(fits(largest + 1, o, small));
      for (std::int64_t n = 1; n <= std::min<std::int64_t>(2 * largest + 10, 60); ++n) {
        const std::optional<Bytes> least = least_budget(Chain::uniform(n, kStep), small, o);
        EXPECT_EQ(least && *least <= budget, n <= largest) << n << " steps";
      }
    }
  }
  // Restarting from one state reaches any length.
  for (const char* const strategy : {"constant", "revolve", "ism", "msm", "auto", "online"}) {
    EXPECT_EQ(largest_steps(kStep, 0, {}, in_bytes(strategy, 20)), kUnlimited) << strategy;
    EXPECT_EQ(largest_steps(kStep, 0, {}, in_bytes(strategy, 19)), 0) << strategy;
  }
}

TEST(Questions, SweepsAreSortedAndTimesNeverRise) {
  const Platform tiered = with_tiers({slow_tier(4, 4, 40)});
  for (const std::string strategy : {"auto", "revolve", "ism", "chain", "h_revolve", "store_all"}) {
    for (const Platform& platform : {Platform{}, tiered}) {
      for (const std::int64_t n : {1, 2, 30}) {
        SCOPED_TRACE(strategy + " " + std::to_string(n));
        const Chain chain = Chain::uniform(n, kStep);
        const PlanOptions o = in_bytes(strategy, 0);
        const std::vector<SweepPoint> points = sweep(chain, platform, o, 6);
        ASSERT_FALSE(points.empty());
        EXPECT_EQ(points.front().budget, least_budget(chain, platform, o));
        for (std::size_t i = 1; i < points.size(); ++i) {
          EXPECT_GT(points[i].budget, points[i - 1].budget);
          EXPECT_LE(points[i].plan.prediction.seconds,
                    points[i - 1].plan.prediction.seconds * (1 + 1e-12));
        }
        // The last budget stores all where the strategy keeps tapes.
        if (strategy == "auto" || strategy == "ism" || strategy == "chain") {
          EXPECT_EQ(points.back().plan.prediction.seconds, static_cast<double>(3 * n));
        }
      }
    }
  }
}

// A budget is used: while an item more would fit beside the peak, the next larger budget is no
// faster.
TEST(Budgets, AreUsed) {
  struct Case {
    const char* strategy;
    Bytes item;
  };
  for (const auto& [strategy, item] :
       {Case{"revolve", 4}, Case{"hsm", 4}, Case{"ism", 12}, Case{"msm", 12}, Case{"chain", 12}}) {
    for (const std::int64_t n : {1, 2, 9, 30}) {
      const std::optional<Bytes> least =
          least_budget(Chain::uniform(n, kStep), {}, in_bytes(strategy, 0));
      ASSERT_TRUE(least);
      for (Bytes budget = *least; budget <= 20 + 12 * (n + 2); budget += 3) {
        const Plan plan = plan_for(n, in_bytes(strategy, budget), kStep);
        ASSERT_LE(plan.prediction.peak[0], budget);
        if (plan.prediction.peak[0] + item > budget) continue;
        const Plan more = plan_for(n, in_bytes(strategy, budget + item), kStep);
        EXPECT_EQ(more.prediction.seconds, plan.prediction.seconds)
            << strategy << ", " << n << " steps, budget " << budget << ", peak "
            << plan.prediction.peak[0];
      }
    }
  }
}

// An interval fits whole or not at all: no given one that fits is faster than the one that was
// found.
TEST(Budgets, AreUsedByIntervals) {
  const Platform platform = with_tiers({slow_tier(2, 1, 24)});
  for (const std::string strategy : {"single_local", "single_remote", "single"}) {
    for (const std::int64_t n : {2, 9, 25}) {
      for (Bytes budget = 20; budget <= 20 + 12 * n; budget += 5) {
        PlanOptions o = in_bytes(strategy, budget);
        const std::optional<Bytes> least = least_budget(Chain::uniform(n, kStep), platform, o);
        double best = std::numeric_limits<double>::infinity();
        for (std::int64_t every = 1; every <= n; ++every) {
          o.intervals = {every};
          const auto need = least_budget(Chain::uniform(n, kStep), platform, o);
          if (!need || *need > budget) continue;
          EXPECT_LE(*least, *need);
          best = std::min(best, plan_for(n, o, kStep, platform).prediction.seconds);
        }
        o.intervals.clear();
        ASSERT_EQ(least && *least <= budget, std::isfinite(best));
        if (!std::isfinite(best)) continue;
        EXPECT_EQ(plan_for(n, o, kStep, platform).prediction.seconds, best)
            << strategy << ", " << n << " steps, budget " << budget;
      }
    }
  }
}

}  // namespace
}  // namespace ebb::test::behaviour_test
