// SPDX-License-Identifier: Apache-2.0
// Steps that break what they say of their sizes.
#include "ebb/run/checked_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "ebb/run/run.h"
#include "tests/conformance/walk.h"
#include "tests/message_of.h"

namespace ebb::test::checked_step_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// States of 64 bytes, which a run does not round up, and tapes of two states. One step may be larger
// than it should be, and one call may write a byte where it should not.
class Careless : public Step {
 public:
  enum class Where { nowhere, state, tape, before_tape, adjoint, scratch };
  static constexpr Bytes kState = 64;

  explicit Careless(std::int64_t steps) : steps_(steps) {}
  void make_larger(std::int64_t step) { larger_ = step; }
  void write_beyond(Where where, std::int64_t step) {
    where_ = where;
    at_ = step;
  }

  std::int64_t steps() const override { return steps_; }
  StepBytes bytes(std::int64_t step) const override {
    return {.state = kState,
            .tape = (step == larger_ ? 20 : 2) * kState,
            .adjoint = kState,
            .scratch = kState};
  }
  std::int64_t advance(const StepSpan& span, std::byte* state, std::byte* scratch) override {
    for (std::int64_t i = span.from; i < span.to; ++i) {
      touch(Where::state, i, state + kState);
      touch(Where::scratch, i, scratch + kState);
      state[0] ^= std::byte{1};
    }
    return span.to;
  }
  void record(const StepSpan& span, std::byte* state, const Tapes& tapes, std::byte*) override {
    for (std::int64_t i = span.from; i < span.to; ++i) {
      std::byte* const tape = tapes.at(i - span.from);
      std::memcpy(tape, state, kState);
      state[0] ^= std::byte{1};
      std::memcpy(tape + bytes(i).tape - kState, state, kState);
      touch(Where::tape, i, tape + bytes(i).tape);
      touch(Where::before_tape, i, tape - 1);
    }
  }
  void reverse(std::int64_t from, std::int64_t to, const Tapes&, std::byte* adjoint,
               std::byte*) override {
    for (std::int64_t i = to - 1; i >= from; --i) touch(Where::adjoint, i, adjoint + kState);
  }

 private:
  void touch(Where where, std::int64_t step, std::byte* at) {
    if (where == where_ && step == at_) *at ^= std::byte{1};
  }
  std::int64_t steps_, larger_ = -1, at_ = -1;
  Where where_ = Where::nowhere;
};

// Room for a few states: steps run more than once.
RunOptions scarce(std::int64_t steps) {
  RunOptions options;
  options.budget = 1024;
  options.chain = seconds_of(steps);
  options.platform = Platform{};
  return options;
}

void run_once(Careless& step, const RunOptions& options) {
  const std::vector<std::byte> initial(Careless::kState);
  std::vector<std::byte> final(initial.size()), gradient(initial.size());
  Run run(step, options);
  run.forward(initial, final);
  run.backward(initial, gradient);
}

TEST(UniformSteps, OneOfAnotherSizeIsNamed) {
  for (const std::int64_t larger : {20, 39}) {
    Careless step(40);
    step.make_larger(larger);
    EXPECT_THAT(message_of([&] { run_once(step, scarce(40)); }),
                AllOf(HasSubstr("step 0 has state 64, tape 128,"),
                      HasSubstr("step " + std::to_string(larger) + " has state 64, tape 1280,"),
                      HasSubstr("is_uniform() return false")));
    EXPECT_THAT(message_of([&] { profile(step, 1024, {}); }), HasSubstr("tape 1280"));
  }
}

// Given its costs, a run asks a Step for its sizes and calls nothing else.
TEST(GivenCosts, NothingIsCalledBeforeForward) {
  class Uncalled : public Careless {
   public:
    Uncalled() : Careless(40) {}
    void begin() override { ++calls; }
    std::int64_t advance(const StepSpan& span, std::byte*, std::byte*) override {
      ++calls;
      return span.to;
    }
    void record(const StepSpan&, std::byte*, const Tapes&, std::byte*) override { ++calls; }
    void reverse(std::int64_t, std::int64_t, const Tapes&, std::byte*, std::byte*) override {
      ++calls;
    }
    int calls = 0;
  } step;
  RunOptions options = scarce(40);
  const ebb::Run given(step, options);
  EXPECT_EQ(step.calls, 0);
  options.chain.reset();
  options.profile.step_seconds = 0;
  const ebb::Run measured(step, options);
  EXPECT_GT(step.calls, 0);
}

TEST(CheckWrites, AnyStepOfAnotherSizeIsNamed) {
  Careless step(40);
  step.make_larger(13);
  RunOptions options = scarce(40);
  options.check_writes = true;
  EXPECT_THAT(message_of([&] { run_once(step, options); }),
              HasSubstr("step 13 has state 64, tape 1280,"));
}

TEST(CheckWrites, AByteBeyondAnItemIsNamed) {
  using Where = Careless::Where;
  const auto told = [](Where where) {
    Careless step(40);
    step.write_beyond(where, 17);
    RunOptions options = scarce(40);
    options.check_writes = true;
    return message_of([&] { run_once(step, options); });
  };
  EXPECT_EQ(told(Where::nowhere), "no error");
  EXPECT_THAT(told(Where::state),
              HasSubstr("advance of step 17 wrote beyond its state, which has 64 bytes: byte 64 "));
  EXPECT_THAT(told(Where::scratch), HasSubstr("advance of step 17 wrote beyond its scratch"));
  EXPECT_THAT(told(Where::tape),
              HasSubstr("record of step 17 wrote beyond its tape, which has 128 bytes: byte 128 "));
  EXPECT_THAT(told(Where::before_tape),
              HasSubstr("beyond its tape, which has 128 bytes: byte -1 "));
  EXPECT_THAT(told(Where::adjoint), HasSubstr("reverse of step 17 wrote beyond its adjoint"));
}

TEST(CheckWrites, GoodStepsKeepPlanAndBits) {
  for (const auto make : {small_step, gated_step, spiking_step, uneven_step, network_step}) {
    const auto step = make(30);
    RunOptions options = planned(*step, {memory_tier(1_MiB)});
    const Results expected = stored_all(*step);
    options.budget = budgets(*step, options, "auto").front();
    ebb::Run plain(*step, options);
    options.check_writes = true;
    SCOPED_TRACE(step->name());
    EXPECT_EQ(ebb::Run(*step, options).plan().prediction.peak, plain.plan().prediction.peak);
    check(*step, options, expected);
  }
}

TEST(CheckWrites, CodecsAndUnknownLengths) {
  const auto coded = gated_step(20);
  RunOptions options = planned(*coded);
  options.check_writes = true;
  options.tape_codec = "bf16";
  EXPECT_NO_THROW(ebb::Run(*coded, options));
  const auto endless = endless_step(25);
  RunOptions online = planned(*endless);
  online.chain = seconds_of(40);
  online.profile.expected_steps = 40;
  online.budget = 2000;
  ebb::Run plain(*endless, online);
  const Results expected = results_of(plain, *endless);
  online.check_writes = true;
  ebb::Run guarded(*endless, online);
  EXPECT_TRUE(results_of(guarded, *endless) == expected);
}

}  // namespace
}  // namespace ebb::test::checked_step_test
