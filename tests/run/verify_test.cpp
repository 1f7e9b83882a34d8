// SPDX-License-Identifier: Apache-2.0
#include "ebb/run/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ebb/run/function_step.h"
#include "ebb/run/run.h"
#include "tests/conformance/walk.h"
#include "tests/message_of.h"

namespace ebb::test::verify_test {
namespace {

using ::testing::HasSubstr;

TEST(Verify, GoodStepsGiveTheSameBits) {
  for (const auto make : {small_step, gated_step, spiking_step, uneven_step}) {
    const auto step = make(80);
    RunOptions options = planned(*step, {memory_tier(1_MiB)});
    options.budget = 400'000;
    const std::vector<std::byte> initial = step->initial();
    const Verification found = verify(*step, options, initial, 30);
    EXPECT_TRUE(found.equal()) << found.text();
    EXPECT_EQ(found.steps, 30);
    EXPECT_GE(found.parts.size(), 3U);
    EXPECT_THAT(found.text(), HasSubstr("the same bits"));
  }
}

// A step that remembers how often it ran is not a function of its state: recomputing shows it.
TEST(Verify, FindsStepsThatAreNoFunctions) {
  std::int64_t ran = 0;
  FunctionStep<double> step(
      50, 2,
      [&ran](std::int64_t, auto in, auto out) {
        ++ran;
        out[0] = in[0] + 1e-9 * static_cast<double>(ran);
        out[1] = in[1] * out[0];
      },
      [](std::int64_t, auto before, auto after, auto adjoint) {
        adjoint[0] += adjoint[1] * before[1];
        adjoint[1] *= after[0];
      });
  RunOptions options;
  options.chain = seconds_of(50);
  options.strategy = "revolve";
  options.budget = 1500;
  const std::vector<double> initial{1, 1};
  const Verification found = verify(step, options, std::as_bytes(std::span(initial)), 40);
  EXPECT_FALSE(found.equal());
  EXPECT_GT(found.relative(), 0);
  EXPECT_LT(found.relative(), 1e-3);
  EXPECT_THAT(found.text(), HasSubstr("initial adjoint: "));
}

TEST(Verify, BadInput) {
  const auto step = endless_step(5);
  EXPECT_THAT(message_of([&] { verify(*step, planned(*step), step->initial()); }),
              HasSubstr("length is unknown"));
  const auto small = small_step(5);
  EXPECT_THAT(message_of([&] { verify(*small, planned(*small), small->initial(), -1); }),
              HasSubstr("-1 steps"));
  EXPECT_TRUE(verify(*small, planned(*small), small->initial(), 1000).equal());
}

TEST(GradientCheck, FindsRightAndWrongGradients) {
  for (const auto make : {small_step, gated_step}) {
    const auto step = make(12);
    const std::vector<std::byte> initial = step->initial();
    const GradientCheck found = gradient_check(*step, planned(*step), initial);
    EXPECT_GE(found.lines.size(), 6U);
    EXPECT_LT(found.largest_error(), step->name() == "small" ? 1e-8 : 2e-2) << found.text();
  }
  // The same with a factor that was forgotten.
  FunctionStep<double> wrong(
      10, 1, [](std::int64_t, auto in, auto out) { out[0] = std::sin(in[0]); },
      [](std::int64_t, auto before, auto, auto adjoint) {
        adjoint[0] *= 0.99 * std::cos(before[0]);
      });
  RunOptions options;
  options.chain = seconds_of(10);
  const std::vector<double> initial{0.7};
  const GradientCheck found = gradient_check(wrong, options, std::as_bytes(std::span(initial)));
  EXPECT_GT(found.largest_error(), 0.05);
  EXPECT_THAT(found.text(), HasSubstr("initial.state[0]"));
}

TEST(GradientCheck, NotANumberIsNoAgreement) {
  FunctionStep<double> step(
      5, 1, [](std::int64_t, auto in, auto out) { out[0] = in[0]; },
      [](std::int64_t, auto, auto, auto adjoint) { adjoint[0] = std::nan(""); });
  RunOptions options;
  options.chain = seconds_of(5);
  const std::vector<double> initial{0.5};
  EXPECT_TRUE(std::isnan(gradient_check(step, options, initial).largest_error()));
  EXPECT_TRUE(std::isnan(gradient_check(step, options, initial, initial).largest_error()));
}

TEST(Verify, NotANumberIsADifference) {
  // States beyond the range of fp16: tapes become infinite, gradients not a number.
  FunctionStep<double> step(
      20, 2,
      [](std::int64_t, auto in, auto out) {
        out[0] = in[0];
        out[1] = in[1] * 0.5;
      },
      [](std::int64_t, auto before, auto, auto adjoint) {
        adjoint[0] += (before[0] - before[0]) * adjoint[1];
        adjoint[1] *= 0.5;
      });
  RunOptions options;
  options.chain = seconds_of(20);
  options.tape_codec = "fp16";
  const std::vector<double> initial{1e6, 1};
  EXPECT_TRUE(std::isnan(verify(step, options, initial).relative()));
}

TEST(GradientCheck, BadInput) {
  const auto step = small_step(5);
  EXPECT_THAT(message_of([&] {
                gradient_check(*step, planned(*step), step->initial(), {}, {.elements = 0});
              }),
              HasSubstr("0 elements"));
}

// Two numbers that do not touch each other, whose fields are as the test says.
class NamedFields : public FunctionStep<double> {
 public:
  explicit NamedFields(std::vector<FieldShape> fields)
      : FunctionStep(
            3, 2,
            [](std::int64_t, auto in, auto out) {
              out[0] = 2 * in[0];
              out[1] = 3 * in[1];
            },
            [](std::int64_t, auto, auto, auto adjoint) {
              adjoint[0] *= 2;
              adjoint[1] *= 3;
            }),
        fields_(std::move(fields)) {}
  std::vector<FieldShape> state_fields() const override { return fields_; }

 private:
  std::vector<FieldShape> fields_;
};

// Terms of numbers that nobody named would be missing from the differences: a right adjoint would look
// wrong, and a wrong one would not be looked at.
TEST(GradientCheck, StatesWhoseNumbersAreNotNamedAreRefused) {
  RunOptions options;
  options.chain = seconds_of(3);
  options.platform = Platform{};
  const std::vector<double> initial{0.5, 0.25};
  const auto told = [&](std::vector<FieldShape> fields, std::vector<double> adjoint) {
    NamedFields step(std::move(fields));
    return message_of(
        [&] { EXPECT_LT(gradient_check(step, options, initial, adjoint).largest_error(), 1e-8); });
  };
  const FieldShape first{"x", Element::f64, 0, 8}, second{"y", Element::f64, 8, 8};
  const FieldShape no_numbers{"y", Element::byte, 8, 8};
  EXPECT_EQ(told({first, second}, {1, 1}), "no error");
  EXPECT_EQ(told({second, first}, {1, 1}), "no error");
  EXPECT_EQ(told({first, no_numbers}, {1, 1}), "no error");
  EXPECT_THAT(told({}, {1, 1}), HasSubstr("no state_fields(): override it"));
  EXPECT_THAT(told({first}, {1, 1}), HasSubstr("in none of the step's state_fields()"));
  EXPECT_THAT(told({second}, {1, 1}), HasSubstr("in none of the step's state_fields()"));

  const auto uneven = uneven_step(5);
  EXPECT_THAT(message_of([&] { gradient_check(*uneven, planned(*uneven), uneven->initial()); }),
              HasSubstr("no state_fields()"));
}

// One number becomes two: state_fields() describe the first state, which is the smaller one.
class Growing : public Step {
 public:
  std::int64_t steps() const override { return 1; }
  StepBytes bytes(std::int64_t) const override { return {.state = 8, .tape = 24, .adjoint = 16}; }
  bool is_uniform() const override { return false; }
  Bytes final_bytes() const override { return 16; }
  std::int64_t advance(const StepSpan& span, std::byte* state, std::byte*) override {
    auto* const x = reinterpret_cast<double*>(state);
    x[1] = 3 * x[0];
    return span.to;
  }
  void record(const StepSpan& span, std::byte* state, const Tapes& tapes, std::byte*) override {
    advance(span, state, nullptr);
    std::memcpy(tapes.data + 8, state, 16);
  }
  void reverse(std::int64_t, std::int64_t, const Tapes&, std::byte* adjoint, std::byte*) override {
    auto* const a = reinterpret_cast<double*>(adjoint);
    a[0] += 3 * a[1];
  }
  std::vector<FieldShape> state_fields() const override { return {{"x", Element::f64, 0, 8}}; }
};

TEST(GradientCheck, WeightsOfTheFinalStateBeyondTheFieldsAreRefused) {
  Growing step;
  RunOptions options;
  options.chain = Chain::of({StepCost{}});
  options.platform = Platform{};
  const std::vector<double> initial{0.5};
  const auto error_with = [&](std::vector<double> adjoint) {
    return gradient_check(step, options, initial, adjoint).largest_error();
  };
  EXPECT_LT(error_with({1, 0}), 1e-8);
  EXPECT_THAT(message_of([&] { error_with({1, 1}); }),
              HasSubstr("of the final state, which is in none of the step's state_fields()"));
}

}  // namespace
}  // namespace ebb::test::verify_test
