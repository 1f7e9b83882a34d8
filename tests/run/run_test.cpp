// SPDX-License-Identifier: Apache-2.0
// What a Run promises beside its gradients: clear errors, progress, cancellation, and that it works
// again after anything.
#include "ebb/run/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "ebb/core/error.h"
#include "ebb/plan/strategies.h"
#include "ebb/run/function_step.h"
#include "ebb/run/plan_cache.h"
#include "tests/conformance/walk.h"
#include "tests/message_of.h"

namespace ebb::test {
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
class Throwing : public FunctionStep<double> {
 public:
  Throwing(std::int64_t steps, std::int64_t& fuse)
      : FunctionStep<double>(
            steps, 3,
            [&fuse](std::int64_t, In in, Out out) {
              if (fuse-- == 0) throw std::runtime_error("the user's own");
              for (std::size_t i = 0; i < 3; ++i) out[i] = 0.9 * in[i] + 0.1;
            },
            [&fuse](std::int64_t, In, In, Out adjoint) {
              if (fuse-- == 0) throw std::runtime_error("the user's own");
              for (double& a : adjoint) a *= 0.9;
            }) {}
};

TEST(Run, ExceptionsOfTheStepComeThroughAndLeaveItUsable) {
  std::int64_t fuse = -1;
  Throwing step(20, fuse);
  RunOptions options;
  options.chain = seconds_of(20);
  options.tiers = {memory_tier(1_MiB)};
  options.platform = speeds_of(options.tiers);
  options.strategy = "async";
  options.budget = 800;
  ebb::Run run(step, options);
  const std::vector<double> initial{1, 2, 3}, adjoint{1, 1, 1};
  std::vector<double> final(3), gradient(3);
  std::int64_t thrown = 0;
  for (std::int64_t at = 0; at < 80; ++at) {
    fuse = at;
    try {
      run.forward(initial, final);
      run.backward(adjoint, gradient);
    } catch (const std::runtime_error& error) {
      ASSERT_STREQ(error.what(), "the user's own");
      ++thrown;
    }
  }
  EXPECT_GT(thrown, 40);
  fuse = -1;
  run.forward(initial, final);
  run.backward(adjoint, gradient);
  EXPECT_NEAR(gradient[0], std::pow(0.9, 20), 1e-12);
}

TEST(Run, CancelsAndWorksAgain) {
  // On the heap: GCC 12 takes one on the stack for uninitialized.
  const auto stop = std::make_unique<std::stop_source>();
  FunctionStep<double> step(
      100'000, 1,
      [](std::int64_t, auto in, auto out) {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
        out[0] = in[0];
      },
      [](std::int64_t, auto, auto, auto) {});
  RunOptions options;
  options.chain = seconds_of(100'000);
  options.stop = stop->get_token();
  options.strategy = "revolve";
  options.budget = 2000;
  ebb::Run run(step, options);
  std::vector<double> x{1}, y(1);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    stop->request_stop();
  });
  try {
    run.forward(x, y);
    FAIL() << "it ran to the end";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::cancelled);
    EXPECT_THAT(error.what(), HasSubstr("cancelled after"));
  }
  other.join();
  // The token stays stopped: this run ends at once, and nothing hangs.
  EXPECT_THROW(run.forward(x, y), Error);
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
}  // namespace ebb::test
