// SPDX-License-Identifier: Apache-2.0
// The walk through a plan, with an actor that does nothing but note what it is asked for.
#include "ebb/run/walk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "ebb/core/error.h"
#include "ebb/plan/chain.h"
#include "ebb/plan/strategies.h"
#include "tests/message_of.h"

namespace ebb::test::walk_test {
namespace {

using ::testing::HasSubstr;

constexpr StepCost kStep{
    .forward = 1, .record = 1, .backward = 2, .state = 4, .tape = 12, .adjoint = 4};

class Noting : public PlanActor {
 public:
  explicit Noting(std::int64_t steps) : steps_(steps) {}

  std::int64_t begin() override { return steps_; }
  void turn() override { turned = true; }
  void end() override { ended_well = true; }
  void forget() noexcept override { ++forgotten; }
  void prepare(const Action&) override { ++prepared; }
  std::int64_t advance(const StepSpan& span) override {
    const bool stops = stops_at > span.from && stops_at < span.to;
    const std::int64_t reached = stops ? stops_at : span.to;
    run({span.from, reached, span.first});
    return reached;
  }
  void record(const StepSpan& span) override { run(span); }
  std::int64_t reverse(std::int64_t from, std::int64_t to) override {
    if (throws_before_reversing == to) throw std::runtime_error("mine");
    reversed += to - from;
    return from;
  }
  void copy(const Copy&) override {}
  void drop(const Drop&) override {}
  bool ended(std::int64_t reached, std::int64_t) override { return reached == length; }
  Bytes held() const override { return 7; }

  bool turned = false, ended_well = false;
  std::int64_t forgotten = 0, prepared = 0, reversed = 0, first_runs = 0, forwards = 0, longest = 0;
  std::int64_t stops_at = -1, throws_before_reversing = -1, length = -1;

 private:
  void run(const StepSpan& span) {
    if (span.first) {
      EXPECT_EQ(span.from, first_runs);
      first_runs = span.to;
    } else {
      EXPECT_LE(span.to, first_runs);
    }
    forwards += span.to - span.from;
    longest = std::max(longest, span.to - span.from);
  }

  std::int64_t steps_;
};

Plan revolve(std::int64_t steps) {
  return make_plan(Chain::uniform(steps, kStep), {}, {.strategy = "revolve", .budget = 60});
}

TEST(PlanWalk, FirstRunsAreApartFromRepeatsAndEverythingIsCounted) {
  const Plan plan = revolve(50);
  Noting actor(50);
  PlanWalk walk(actor, plan, {});
  walk.forward();
  EXPECT_EQ(actor.first_runs, 50);
  EXPECT_FALSE(actor.turned);
  walk.backward();
  EXPECT_TRUE(actor.turned);
  EXPECT_TRUE(actor.ended_well);
  EXPECT_EQ(actor.reversed, 50);
  EXPECT_EQ(actor.forwards, plan.prediction.forwards);
  EXPECT_EQ(actor.prepared, plan.prediction.actions);
  const Measured& measured = walk.measured();
  EXPECT_EQ(measured.steps, 50);
  EXPECT_EQ(measured.actions, plan.prediction.actions);
  EXPECT_EQ(measured.advances, plan.prediction.advances);
  EXPECT_EQ(measured.records, plan.prediction.records);
  EXPECT_GT(actor.longest, 1);
}

TEST(PlanWalk, PiecesAreToldOf) {
  const Plan plan = revolve(50);
  Noting actor(50);
  std::vector<Progress> told;
  PlanWalk walk(actor, plan,
                {.in_pieces = true,
                 .progress = [&told](const Progress& progress) { told.push_back(progress); },
                 .progress_seconds = 0});
  walk.forward();
  ASSERT_GT(told.size(), 1U);
  EXPECT_EQ(told.front().forwards, 1);  // the first piece is one step
  walk.backward();
  EXPECT_TRUE(told.back().backward);
  EXPECT_EQ(told.back().reversed, 50);
  EXPECT_EQ(told.back().held, 7);
}

TEST(PlanWalk, AnExceptionIsForgottenAndTheNextForwardBeginsAnew) {
  const Plan plan = revolve(50);
  Noting actor(50);
  PlanWalk walk(actor, plan, {});
  walk.forward();
  const std::int64_t before = actor.forgotten;
  actor.throws_before_reversing = 20;
  EXPECT_THROW(walk.backward(), std::runtime_error);
  EXPECT_EQ(actor.forgotten, before + 1);
  EXPECT_THAT(message_of([&] { walk.backward(); }), HasSubstr("there was none"));
  actor.throws_before_reversing = -1;
  actor.first_runs = actor.reversed = 0;
  walk.forward();
  walk.backward();
  EXPECT_EQ(actor.reversed, 50);
}

TEST(PlanWalk, AStopWhereNothingEndsIsRefused) {
  const Plan plan = revolve(50);
  Noting actor(50);
  PlanWalk walk(actor, plan, {});
  actor.stops_at = 1;
  EXPECT_THAT(message_of([&] { walk.forward(); }), HasSubstr("came to 1, where nothing ends"));
}

TEST(PlanWalk, TheEndOfAnUnknownLengthIsFound) {
  PlanOptions how;
  how.strategy = "online";
  how.budget = 60;
  how.length_unknown = true;
  const Plan plan = make_plan(Chain::uniform(50, kStep), {}, how);
  for (const std::int64_t steps : {1, 2, 9, 33}) {
    Noting actor(Step::kUnknown);
    actor.stops_at = actor.length = steps;
    PlanWalk walk(actor, plan, {});
    walk.forward();
    EXPECT_EQ(walk.steps(), steps);
    walk.backward();
    EXPECT_EQ(actor.reversed, steps);
    EXPECT_EQ(walk.measured().steps, steps);
  }
}

TEST(PlanWalk, NothingIsAskedForWhereThereIsNoStep) {
  const Plan plan = revolve(0);
  Noting actor(0);
  PlanWalk walk(actor, plan, {});
  walk.forward();
  walk.backward();
  EXPECT_EQ(actor.prepared, 0);
  EXPECT_TRUE(actor.ended_well);
}

}  // namespace
}  // namespace ebb::test::walk_test
