// SPDX-License-Identifier: Apache-2.0
// Runs over opaque handles: the Step keeps what the plan says, nothing else, and gets every step once.
#include "ebb/run/handle_run.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "ebb/core/error.h"
#include "ebb/plan/strategies.h"

namespace ebb::test::handle_run_test {
namespace {

// x' = 3 x + i with numbers that wrap around: every state is known, and the order of reversal too.
class Counting : public HandleStep {
 public:
  explicit Counting(std::optional<std::int64_t> end = {}) : end_(end) {}

  std::int64_t advance(const StepSpan& span) override {
    std::int64_t i = span.from;
    while (i < span.to) {
      run(i++, span.first);
      if (end_ && span.first && i == *end_) break;
    }
    return i;
  }
  void record(const StepSpan& span) override {
    for (std::int64_t i = span.from; i < span.to; ++i) {
      const std::uint64_t before = live_;
      run(i, span.first);
      if (throws_at == i) throw std::out_of_range("mine");
      ASSERT_TRUE(tapes.emplace(i, std::pair(before, live_)).second);
    }
  }
  void reverse(std::int64_t from, std::int64_t to) override {
    for (std::int64_t i = to - 1; i >= from; --i) {
      ASSERT_EQ(tapes.at(i).first, state(i));
      ASSERT_EQ(tapes.at(i).second, state(i + 1));
      tapes.erase(i);
      reversed.push_back(i);
    }
  }
  void copy(const Copy& copy) override {
    ASSERT_EQ(copy.item, Item::state);
    std::uint64_t value = live_;
    if (copy.from != Place::work) {
      const auto held = kept.find({copy.from.id, copy.step});
      if (held != kept.end()) {
        value = held->second;
      } else {
        value = copy.step == 0 ? 1 : tapes.at(copy.step - 1).second;
      }
    }
    if (copy.to == Place::work) {
      live_ = value;
    } else {
      kept[{copy.to.id, copy.step}] = value;
    }
  }
  void drop(const Drop& drop) override { ASSERT_EQ((kept.erase({drop.place.id, drop.step})), 1U); }
  bool ended(std::int64_t step) override { return end_ && step == *end_; }

  void begin() {
    live_ = 1;
    first_ = 0;
    reversed.clear();
    kept.clear();
    tapes.clear();
  }
  static std::uint64_t state(std::int64_t step) {
    std::uint64_t value = 1;
    for (std::int64_t i = 0; i < step; ++i) value = 3 * value + static_cast<std::uint64_t>(i);
    return value;
  }

  std::map<std::pair<std::int8_t, std::int64_t>, std::uint64_t> kept;
  std::map<std::int64_t, std::pair<std::uint64_t, std::uint64_t>> tapes;
  std::vector<std::int64_t> reversed;
  std::int64_t throws_at = -1;

 private:
  void run(std::int64_t i, bool first) {
    EXPECT_EQ(live_, state(i));
    EXPECT_EQ(first, i == first_);
    if (first) ++first_;
    live_ = 3 * live_ + static_cast<std::uint64_t>(i);
  }

  std::uint64_t live_ = 1;
  std::int64_t first_ = 0;
  std::optional<std::int64_t> end_;
};

constexpr StepCost kStep{
    .forward = 1, .record = 1, .backward = 2, .state = 4, .tape = 12, .adjoint = 4};

std::shared_ptr<const Plan> plan_of(const Chain& chain, Bytes budget, const std::string& strategy,
                                    const Platform& platform = {}, bool unknown = false) {
  PlanOptions how;
  how.strategy = strategy;
  how.budget = budget;
  how.tapes_stay = true;
  how.length_unknown = unknown;
  return std::make_shared<const Plan>(make_plan(chain, platform, how));
}

Platform with_disk() {
  Platform platform;
  platform.tiers = {{.name = "disk", .write_rate = 4, .read_rate = 4}};
  return platform;
}

void expect_all_reversed(const Counting& step, std::int64_t steps) {
  ASSERT_EQ(static_cast<std::int64_t>(step.reversed.size()), steps);
  for (std::int64_t i = 0; i < steps; ++i) {
    EXPECT_EQ(step.reversed[static_cast<std::size_t>(i)], steps - 1 - i);
  }
  EXPECT_TRUE(step.kept.empty());
  EXPECT_TRUE(step.tapes.empty());
}

TEST(HandleRun, EveryStrategyReversesEveryStepOnce) {
  for (const StrategyRow& row : strategies()) {
    for (const std::int64_t steps : {1, 2, 7, 60}) {
      const Chain chain = Chain::uniform(steps, kStep);
      std::shared_ptr<const Plan> plan;
      try {
        plan =
            plan_of(chain, row.name == "store_all" ? 2000 : 80, std::string(row.name), with_disk());
      } catch (const Error&) {
        continue;  // does not fit
      }
      SCOPED_TRACE(std::string(row.name) + " " + std::to_string(steps));
      Counting step;
      const Ledger ledger(2000);
      HandleRun run(step, chain, plan, ledger);
      for (int round = 0; round < 2; ++round) {
        step.begin();
        run.forward();
        run.backward();
        expect_all_reversed(step, steps);
        EXPECT_EQ(ledger.live(), 0);
        EXPECT_EQ(ledger.peak(), plan->prediction.peak[0]);
        EXPECT_EQ(run.report().measured.forwards(), plan->prediction.forwards);
        EXPECT_EQ(run.report().measured.steps, steps);
      }
    }
  }
}

TEST(HandleRun, UnknownLengths) {
  for (const std::int64_t steps : {0, 1, 2, 3, 8, 100, 1001}) {
    for (const char* strategy : {"online", "async"}) {
      SCOPED_TRACE(std::string(strategy) + " " + std::to_string(steps));
      const Chain chain = Chain::uniform(50, kStep);
      const auto plan = plan_of(chain, 80, strategy, with_disk(), true);
      Counting step(steps);
      HandleRun run(step, chain, plan, Ledger(80));
      step.begin();
      run.forward();
      run.backward();
      expect_all_reversed(step, steps);
    }
  }
}

TEST(HandleRun, StepsThatDiffer) {
  std::vector<StepCost> costs;
  for (int i = 0; i < 12; ++i) {
    StepCost cost = kStep;
    cost.state = 2 + i % 3;
    cost.adjoint = 6;
    cost.tape = 8 + 5 * (i % 4);
    costs.push_back(cost);
  }
  const Chain chain = Chain::of(costs);
  const auto plan = plan_of(chain, 80, "auto");
  EXPECT_GT(plan->prediction.advances, 0);
  Counting step;
  HandleRun run(step, chain, plan, Ledger(80));
  step.begin();
  run.forward();
  run.backward();
  expect_all_reversed(step, 12);
}

TEST(HandleRun, AnExceptionComesThroughAndTheRunBeginsAnew) {
  const Chain chain = Chain::uniform(40, kStep);
  const auto plan = plan_of(chain, 80, "auto");
  Counting step;
  const Ledger ledger(80);
  HandleRun run(step, chain, plan, ledger);
  step.begin();
  step.throws_at = 20;
  run.forward();
  EXPECT_THROW(run.backward(), std::out_of_range);
  EXPECT_EQ(ledger.live(), 0);
  EXPECT_THROW(run.backward(), Error);
  step.throws_at = -1;
  step.begin();
  run.forward();
  run.backward();
  expect_all_reversed(step, 40);
}

TEST(HandleRun, RunsShareALedger) {
  const Chain chain = Chain::uniform(40, kStep);
  const auto plan = plan_of(chain, 80, "revolve");
  Counting first, second, third;
  const Ledger ledger(120);
  HandleRun one(first, chain, plan, ledger), two(second, chain, plan, ledger);
  first.begin();
  second.begin();
  one.forward();
  const Bytes between = ledger.live();
  EXPECT_GT(between, 0);
  EXPECT_LT(between, plan->prediction.peak[0]);
  try {
    two.forward();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_budget);
  }
  EXPECT_EQ(ledger.live(), between);
  one.abandon();
  EXPECT_EQ(ledger.live(), 0);
  second.begin();
  two.forward();
  two.backward();
  expect_all_reversed(second, 40);
  EXPECT_THROW(one.backward(), Error);
  EXPECT_THROW(HandleRun(third, chain, nullptr, ledger), Error);
}

}  // namespace
}  // namespace ebb::test::handle_run_test
