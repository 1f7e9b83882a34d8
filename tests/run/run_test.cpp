// SPDX-License-Identifier: Apache-2.0
// What a Run promises beside its gradients: clear errors, progress, cancellation, and that it works
// again after anything.
#include "ebb/run/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ebb/core/error.h"
#include "ebb/plan/strategies.h"
#include "ebb/run/function_step.h"
#include "ebb/run/plan_cache.h"
#include "tests/conformance/walk.h"
#include "tests/message_of.h"
#include "tests/run/slow_medium.h"

namespace ebb::test::run_test {
namespace {

using ::testing::HasSubstr;

RunOptions scarce(const TestStep& step) {
  RunOptions options = planned(step);
  options.strategy = "revolve";
  options.budget = 1000;
  return options;
}

TEST(Run, RefusesWhatCannotBe) {
  const auto step = small_step(10);
  const auto refusal = [&](const std::function<void(RunOptions&)>& change) {
    RunOptions options = planned(*step);
    change(options);
    return message_of([&] { ebb::Run(*step, options); });
  };
  EXPECT_THAT(refusal([](RunOptions& o) { o.budget = -1; }), HasSubstr("the budget is -1 bytes"));
  EXPECT_THAT(refusal([](RunOptions& o) { o.strategy = "magic"; }), HasSubstr("magic"));
  EXPECT_THAT(refusal([](RunOptions& o) { o.chain = seconds_of(11); }),
              HasSubstr("the chain has 11 steps, the step says 10"));
  EXPECT_THAT(refusal([](RunOptions& o) { o.platform = speeds_of({memory_tier(10)}); }),
              HasSubstr("the platform has 1 tiers, the run 0"));
  EXPECT_THAT(refusal([](RunOptions& o) { o.trace_events = std::size_t{1} << 60; }),
              HasSubstr("a trace of"));
  EXPECT_THAT(refusal([](RunOptions& o) { o.progress_seconds = -1; }), HasSubstr("progress every"));
  EXPECT_THAT(refusal([](RunOptions& o) { o.replan_factor = 0.5; }), HasSubstr("more than 1"));
  EXPECT_THAT(refusal([](RunOptions& o) {
                o.tiers = {SlowTier{.name = "x", .open = {}}};
                o.platform = speeds_of(o.tiers);
              }),
              HasSubstr("no medium"));
  EXPECT_THAT(refusal([](RunOptions& o) {
                o.tiers = {memory_tier(10, "same"), memory_tier(10, "same")};
                o.platform = speeds_of(o.tiers);
              }),
              HasSubstr("same"));
  EXPECT_THAT(refusal([](RunOptions& o) {
                o.plan = Plan{};
                o.chain.reset();
              }),
              HasSubstr("a plan needs the chain"));
}

TEST(Run, InfeasibleBudgetsNameTheLeast) {
  const auto step = small_step(10);
  RunOptions options = planned(*step);
  options.budget = 100;
  try {
    ebb::Run run(*step, options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::infeasible_budget);
    options.budget = error.least_budget().value();
  }
  ebb::Run run(*step, options);
  EXPECT_TRUE(results_of(run, *step) == stored_all(*step));
  --options.budget;
  EXPECT_THROW(ebb::Run(*step, options), Error);
}

TEST(Run, WrongSizesAndOrder) {
  const auto step = small_step(10);
  ebb::Run run(*step, scarce(*step));
  std::vector<double> state(5), adjoint(5), result(5), wrong(4);
  EXPECT_THAT(message_of([&] { run.backward(adjoint, result); }), HasSubstr("there was none"));
  EXPECT_THAT(message_of([&] { run.forward(wrong, result); }),
              HasSubstr("the initial state has 32 bytes; the step says 40"));
  EXPECT_THAT(message_of([&] { run.forward(state, wrong); }), HasSubstr("the final state has 32"));
  run.forward(state, result);
  EXPECT_THAT(message_of([&] { run.backward(wrong, result); }), HasSubstr("the adjoint has 32"));
  run.backward(adjoint, result);
  EXPECT_THAT(message_of([&] { run.backward(adjoint, result); }), HasSubstr("there was none"));
  EXPECT_TRUE(results_of(run, *step) == stored_all(*step));
}

TEST(Run, ForwardAloneMayBeRepeated) {
  const auto step = small_step(30);
  const Results expected = stored_all(*step);
  ebb::Run run(*step, scarce(*step));
  std::vector<std::byte> final(40);
  for (int i = 0; i < 3; ++i) {
    run.forward(std::span<const std::byte>(step->initial()), std::span(final));
    EXPECT_EQ(final, expected.final);
  }
  EXPECT_TRUE(results_of(run, *step) == expected);
}

// A Step that throws at its n-th forward or backward.
TEST(Run, InitialAndFinalMayNotOverlap) {
  const auto step = small_step(10);
  ebb::Run run(*step, scarce(*step));
  std::vector<double> state(5);
  EXPECT_THAT(message_of([&] { run.forward(state, state); }), HasSubstr("overlap"));
}

// A medium that opens once: what fails while planning anew leaves a Run that says so each time.
TEST(Run, SurvivesAFailedReplan) {
  const auto step = small_step(300);
  int opened = 0;
  bool refuses = true;
  SlowTier tier;
  tier.name = "once";
  tier.capacity = 1_MiB;
  tier.open = [&](const Ledger&) -> std::unique_ptr<Medium> {
    if (++opened > 1 && refuses) throw Error(ErrorCode::io, "no second time");
    return std::make_unique<SlowMedium>();
  };
  RunOptions options = planned(*step, {tier});
  options.strategy = "async";
  options.budget = 2000;
  options.replan_factor = 2;
  ebb::Run run(*step, options);
  results_of(run, *step);
  for (int again = 0; again < 2; ++again) {
    try {
      results_of(run, *step);
      FAIL() << "it opened twice";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::io);
    }
    EXPECT_EQ(run.report().measured.steps, 0);
  }
  refuses = false;
  EXPECT_TRUE(results_of(run, *step) == stored_all(*step));
}

TEST(Run, MovedFrom) {
  const auto step = small_step(10);
  ebb::Run run(*step, scarce(*step));
  ebb::Run other(std::move(run));
  EXPECT_TRUE(results_of(other, *step) == stored_all(*step));
  // NOLINTNEXTLINE(bugprone-use-after-move): that it is an error is what is tested.
  EXPECT_THAT(message_of([&] { static_cast<void>(run.plan()); }), HasSubstr("moved from"));
}

// Even what is measured stays within the budget, in a ledger that allows more.
TEST(Run, TheBudgetHoldsInALargerLedger) {
  const auto step = gated_step(50);
  const Ledger ledger;
  RunOptions options;
  options.ledger = ledger;
  options.budget = 200'000;
  options.tiers = {memory_tier(10_MiB)};
  options.profile.step_seconds = options.profile.tier_seconds = 0.01;
  ebb::Run run(*step, options);
  results_of(run, *step);
  EXPECT_LE(ledger.peak(), 200'000);
  // Slots are states; the working set beside them must fit too.
  RunOptions slots = planned(*step);
  slots.strategy = "revolve";
  slots.slots = 4;
  slots.budget = 50'000;
  EXPECT_THROW(ebb::Run(*step, slots), Error);
}

TEST(Run, TooSmallBudgetsAreSaidBeforeAnythingIsMeasured) {
  const auto step = gated_step(50);
  RunOptions options;
  options.budget = 10'000;
  options.tiers = {memory_tier(10_MiB)};
  try {
    ebb::Run run(*step, options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::infeasible_budget);
    EXPECT_TRUE(error.least_budget().has_value());
  }
}

// Measure, plan, run in three calls, for steps that differ too.
TEST(Run, ThreeCalls) {
  for (const auto make : {small_step, uneven_step}) {
    const auto step = make(60);
    ProfileOptions quick;
    quick.step_seconds = 0.01;
    const Profile found = profile(*step, 8000, {}, quick);
    RunOptions options;
    options.budget = 8000;
    options.chain = found.chain;
    options.platform = found.platform;
    options.plan = make_plan(found.chain, found.platform, {.strategy = "chain", .budget = 3500});
    try {
      ebb::Run run(*step, options);
      EXPECT_TRUE(results_of(run, *step) == stored_all(*step));
    } catch (const Error& error) {
      // Steps that differ are run with room for the largest: refused when the run is made, or not.
      EXPECT_FALSE(step->is_uniform()) << error.what();
      EXPECT_THAT(error.what(), HasSubstr("replay"));
    }
  }
}

// Copies within fast memory are part of what a run predicts, whoever made the plan.
TEST(Run, PredictsCopies) {
  const auto step = small_step(60);
  RunOptions options = scarce(*step);
  options.strategy = "revolve";
  options.tiers = {};
  options.platform = Platform{};
  const ebb::Run free(*step, options);
  options.platform->copy_rate = 1e3;
  const ebb::Run copying(*step, options);
  EXPECT_GT(copying.plan().prediction.seconds, free.plan().prediction.seconds);
  options.plan = free.plan();
  options.chain = free.chain();
  const ebb::Run given(*step, options);
  EXPECT_EQ(given.plan().prediction.seconds, copying.plan().prediction.seconds);
}

TEST(Run, TellsProgress) {
  const auto step = small_step(3000);
  RunOptions options = scarce(*step);
  std::vector<Progress> told;
  options.progress_seconds = 0;
  options.progress = [&](const Progress& p) { told.push_back(p); };
  ebb::Run run(*step, options);
  results_of(run, *step);
  ASSERT_GE(told.size(), 2U);
  EXPECT_FALSE(told.front().backward);
  for (std::size_t i = 0; i < told.size(); ++i) {
    EXPECT_EQ(told[i].steps, 3000);
    EXPECT_EQ(told[i].all_forwards, run.plan().prediction.forwards);
    EXPECT_LE(told[i].forwards, told[i].all_forwards);
    EXPECT_LE(told[i].held, told[i].budget);
    if (i > 0) {
      EXPECT_GE(told[i].forwards, told[i - 1].forwards);
      EXPECT_GE(told[i].reversed, told[i - 1].reversed);
    }
  }
}

TEST(Run, ShareALedger) {
  const Ledger ledger(2500);
  const auto step = small_step(20);
  RunOptions options = scarce(*step);
  options.ledger = ledger;
  {
    ebb::Run first(*step, options), second(*step, options);
    EXPECT_EQ(ledger.live(), first.report().booked + second.report().booked);
    EXPECT_LE(ledger.live(), 2500);
    // The third does not fit beside them.
    try {
      ebb::Run third(*step, options);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_budget);
      EXPECT_THAT(error.what(), HasSubstr("needs"));
    }
    EXPECT_TRUE(results_of(first, *step) == results_of(second, *step));
  }
  EXPECT_EQ(ledger.live(), 0);
  EXPECT_NO_THROW(ebb::Run(*step, options));
}

TEST(Run, PlansAreMadeOnce) {
  const auto step = small_step(777);
  const RunOptions options = scarce(*step);
  const ebb::Run first(*step, options);
  const std::int64_t hits = cached_plan_hits();
  const ebb::Run second(*step, options);
  EXPECT_EQ(cached_plan_hits(), hits + 1);
  RunOptions other = options;
  other.budget += 64;
  const ebb::Run third(*step, other);
  EXPECT_EQ(cached_plan_hits(), hits + 1);
}

TEST(Run, ExecutesAPlanOfTheCaller) {
  const auto step = small_step(40);
  RunOptions options = planned(*step);
  const ebb::Run sizes(*step, options);
  options.plan = make_plan(sizes.chain(), sizes.platform(),
                           {.strategy = "ism", .budget = 64 * 3 + 128 + 64 * 20});
  options.chain = sizes.chain();
  ebb::Run run(*step, options);
  EXPECT_EQ(run.plan().strategy, "ism");
  EXPECT_TRUE(results_of(run, *step) == stored_all(*step));
  // One that was made for other steps is refused before anything runs.
  const auto longer = small_step(41);
  options.chain = seconds_of(41);
  EXPECT_THAT(message_of([&] { ebb::Run(*longer, options); }), HasSubstr("replay"));
}

TEST(Run, StepsWhoseSizesCannotBe) {
  class Odd : public FunctionStep<double> {
   public:
    Odd(StepBytes bytes, Bytes final)
        : FunctionStep<double>(
              3, 1, [](std::int64_t, In, Out) {}, [](std::int64_t, In, In, Out) {}),
          bytes_(bytes),
          final_(final) {}
    StepBytes bytes(std::int64_t) const override { return bytes_; }
    Bytes final_bytes() const override { return final_; }

   private:
    StepBytes bytes_;
    Bytes final_;
  };
  const auto refusal = [](const StepBytes& bytes, Bytes final) {
    Odd step(bytes, final);
    return message_of([&] { ebb::Run(step, {.chain = seconds_of(3)}); });
  };
  EXPECT_THAT(refusal({.state = 0, .tape = 8, .adjoint = 8}, 8), HasSubstr("state 0"));
  EXPECT_THAT(refusal({.state = 8, .tape = 7, .adjoint = 8}, 8), HasSubstr("is not in it"));
  EXPECT_THAT(refusal({.state = 8, .tape = 16, .adjoint = 4}, 8), HasSubstr("an adjoint of 4"));
  EXPECT_THAT(refusal({.state = 8, .tape = 16, .adjoint = 16}, 16), HasSubstr("at most 8"));
  EXPECT_THAT(refusal({.state = 8, .tape = 16, .adjoint = 8, .scratch = -1}, 8),
              HasSubstr("scratch -1"));
}

}  // namespace
}  // namespace ebb::test::run_test
