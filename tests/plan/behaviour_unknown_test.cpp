// SPDX-License-Identifier: Apache-2.0
// Plans of unknown length: the cursor sweeps on until it is told where the sequence ended.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ebb/core/error.h"
#include "ebb/plan/replay.h"
#include "tests/plan/ask.h"
#include "tests/plan/vector_cursor.h"

namespace ebb::test::behaviour_unknown_test {
namespace {

constexpr StepCost kStep{
    .forward = 1, .record = 1, .backward = 2, .state = 4, .tape = 12, .adjoint = 4};
constexpr std::int64_t kLongest = 40;

// What a caller sees whose sequence ends after n steps: the Advance that passes the end stops
// there.
std::vector<Action> drive(const Plan& plan, std::int64_t n) {
  std::vector<Action> actions;
  const auto cursor = plan.cursor();
  bool told = false;
  std::int64_t at = 0;
  for (Action action; cursor->next(action);) {
    const Advance* const sweep = told ? nullptr : std::get_if<Advance>(&action);
    if (sweep == nullptr) {
      actions.push_back(action);
      continue;
    }
    EXPECT_EQ(sweep->from, at);
    at = sweep->to;
    if (at < n) {
      actions.push_back(action);
      continue;
    }
    if (sweep->from < n) actions.push_back(Advance{sweep->from, n});
    told = true;
    cursor->finish(n);
  }
  EXPECT_TRUE(told);
  return actions;
}

// The plan is made for 20 steps; the sequence ends where it ends. (Slots and no steps at all:
// EmptySequences.)
void expect_any_length(const PlanOptions& options, const Platform& platform) {
  const Plan plan = plan_for(20, options, kStep, platform);
  EXPECT_TRUE(plan.length_unknown);
  for (std::int64_t n = options.slots ? 1 : 0; n <= kLongest; ++n) {
    SCOPED_TRACE(options.strategy + ", " + std::to_string(n) + " steps");
    const Chain chain = Chain::uniform(n, kStep);
    const Prediction told = replay(chain, plan.machine, *plan.cursor(), {.length_unknown = true});
    EXPECT_EQ(told.records, n);
    EXPECT_GE(told.forwards, 2 * n);  // the sweep records nothing
    VectorCursor driven(drive(plan, n));
    const Prediction by_hand = replay(chain, plan.machine, driven);
    EXPECT_EQ(by_hand.forwards, told.forwards);
    EXPECT_EQ(by_hand.records, n);
    EXPECT_EQ(by_hand.actions, told.actions);
    EXPECT_EQ(by_hand.seconds, told.seconds);
    EXPECT_EQ(by_hand.peak, told.peak);
    if (testing::Test::HasFailure()) return;
  }
  // What the prediction assumed.
  EXPECT_EQ(plan.prediction.records, 20);
}

PlanOptions unknown(PlanOptions o) {
  o.length_unknown = true;
  return o;
}

PlanOptions in_bytes(const std::string& strategy, Bytes budget) {
  PlanOptions o;
  o.strategy = strategy;
  o.budget = budget;
  return o;
}

TEST(UnknownLength, Online) {
  for (std::int64_t slots = 1; slots <= 6; ++slots) {
    expect_any_length(unknown(in_slots("online", slots)), {});
    expect_any_length(unknown(in_bytes("online", 20 + 4 * (slots - 1))), {});
  }
}

TEST(UnknownLength, Async) {
  const Platform platform = with_tiers({slow_tier(3, 2)});
  for (const std::vector<std::int64_t>& intervals :
       {std::vector<std::int64_t>{}, {1}, {2}, {5}, {7}, {20}}) {
    for (const Bytes extra : {4, 8, 16, 40}) {
      PlanOptions bytes = unknown(in_bytes("async", 20 + extra));
      bytes.intervals = intervals;
      expect_any_length(bytes, platform);
      PlanOptions slots = unknown(in_slots("async", 1 + extra / 4));
      slots.intervals = intervals;
      expect_any_length(slots, platform);
      if (testing::Test::HasFailure()) return;
    }
  }
}

// A given interval may be longer than the length that the prediction assumes.
TEST(UnknownLength, IntervalLongerThanAssumed) {
  const Platform platform = with_tiers({slow_tier(3, 2)});
  for (const std::int64_t every : {21, 39, 64}) {
    PlanOptions o = unknown(in_slots("async", 4));
    o.intervals = {every};
    expect_any_length(o, platform);
    o = unknown(in_bytes("async", 20 + 40));
    o.intervals = {every};
    expect_any_length(o, platform);
  }
}

// The same shape as where the length is known, but for the last interval, which runs once more.
TEST(UnknownLength, CostsAtMostOneSweepOfTheLastInterval) {
  const Platform platform = with_tiers({slow_tier(0, 0)});
  for (const std::int64_t n : {50, 57, 61}) {
    PlanOptions o = in_slots("async", 3);
    o.intervals = {10};
    const StepCost heavy{.tape = 1000};
    const Plan known = plan_for(n, o, heavy, platform);
    const Plan blind = plan_for(n, unknown(o), heavy, platform);
    EXPECT_GE(blind.prediction.forwards, known.prediction.forwards);
    EXPECT_LE(blind.prediction.forwards, known.prediction.forwards + 10);
  }
}

// A caller who has no step at all says so before the first action. Replay does too: in slots the
// cursor keeps the initial state first, and without steps there is no such state.
TEST(UnknownLength, EmptySequences) {
  const Platform platform = with_tiers({slow_tier(3, 2)});
  for (const std::string strategy : {"online", "async"}) {
    SCOPED_TRACE(strategy);
    const PlanOptions o = unknown(in_slots(strategy, 3));
    const Plan plan = plan_for(20, o, {}, platform);
    const auto cursor = plan.cursor();
    cursor->finish(0);
    Action action;
    EXPECT_FALSE(cursor->next(action));
    EXPECT_NO_THROW(
        replay(Chain::uniform(0, {}), plan.machine, *plan.cursor(), {.length_unknown = true}));
    EXPECT_NO_THROW(plan_for(0, o, {}, platform));
  }
}

TEST(UnknownLength, FinishMustLieInTheLastAdvance) {
  const Plan plan = plan_for(20, unknown(in_slots("online", 3)));
  const auto cursor = plan.cursor();
  Action action;
  std::int64_t reached = 0;
  while (reached < 6 && cursor->next(action)) {
    if (const Advance* const a = std::get_if<Advance>(&action)) reached = a->to;
  }
  EXPECT_THROW(cursor->finish(reached + 1), Error);
  EXPECT_THROW(cursor->finish(0), Error);
  EXPECT_NO_THROW(cursor->finish(reached));
  EXPECT_THROW(cursor->finish(reached), Error);
  EXPECT_THROW(plan_for(5, in_slots("revolve", 2)).cursor()->finish(5), Error);
}

}  // namespace
}  // namespace ebb::test::behaviour_unknown_test
