// SPDX-License-Identifier: Apache-2.0
#include "ebb/experiments/stencil_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "ebb/run/run.h"
#include "ebb/run/sizes.h"
#include "ebb/run/verify.h"
#include "tests/message_of.h"

namespace ebb::test::stencil_step_test {
namespace {

using ::testing::HasSubstr;

RunOptions planned(const StencilStep& step) {
  RunOptions options;
  options.chain = chain_of(step, false, step.steps(), nullptr);
  return options;
}

TEST(StencilStep, AdjointIsTheDerivative) {
  for (const std::int64_t sweeps : {1, 2, 3, 8}) {
    StencilStep step(6, 40, sweeps);
    const std::vector<float> initial = step.initial();
    const std::vector<float> adjoint = step.final_adjoint();
    const GradientCheck found =
        gradient_check(step, planned(step), std::as_bytes(std::span(initial)),
                       std::as_bytes(std::span(adjoint)), {.elements = 40});
    EXPECT_EQ(found.lines.size(), 40U);
    // In floats: their rounding over the width of the difference.
    EXPECT_LT(found.largest_error(), 1e-2) << sweeps << " sweeps\n" << found.text();
  }
}

// The same in double precision, by the transpose: <w, J v> = <J' w, v>.
TEST(StencilStep, AdjointIsTheTranspose) {
  for (const std::int64_t sweeps : {1, 4, 7}) {
    StencilStep step(5, 64, sweeps);
    ebb::Run run(step, planned(step));
    const std::vector<float> initial = step.initial();
    const std::vector<float> adjoint = step.final_adjoint();
    std::vector<float> final(64), gradient(64);
    run.forward(initial, final);
    run.backward(adjoint, gradient);
    constexpr float width = 1e-2F;
    std::vector<float> more = initial, less = initial, more_final(64), less_final(64);
    double inner = 0;
    for (std::size_t i = 0; i < 64; ++i) {
      const float v = static_cast<float>(i % 7) / 7.0F;
      more[i] += width * v;
      less[i] -= width * v;
      inner += static_cast<double>(gradient[i]) * v;
    }
    run.forward(more, more_final);
    run.forward(less, less_final);
    double difference = 0;
    for (std::size_t i = 0; i < 64; ++i) {
      difference += static_cast<double>(adjoint[i]) * (more_final[i] - less_final[i]);
    }
    EXPECT_NEAR(difference / (2 * width), inner, 2e-3 * std::abs(inner)) << sweeps;
  }
}

TEST(StencilStep, EveryPlanGivesTheSameBits) {
  for (const std::int64_t sweeps : {1, 2, 5}) {
    StencilStep step(60, 1000, sweeps);
    const std::vector<float> initial = step.initial();
    for (const char* strategy : {"revolve", "msm", "async", "constant"}) {
      RunOptions options = planned(step);
      options.strategy = strategy;
      options.budget = 60'000;
      options.tiers = {memory_tier(1_MiB)};
      options.platform = Platform{.tiers = {{.name = "ram", .write_rate = 1e3}}};
      const Verification found = verify(step, options, std::as_bytes(std::span(initial)), 60);
      EXPECT_TRUE(found.equal()) << strategy << '\n' << found.text();
    }
  }
}

// Nothing grows, fades or becomes denormal, however long.
TEST(StencilStep, ConservesTheSumAndStaysInRange) {
  StencilStep step(3000, 256, 2);
  RunOptions options = planned(step);
  options.strategy = "revolve";
  options.budget = 64_KiB;
  ebb::Run run(step, options);
  const std::vector<float> initial = step.initial();
  std::vector<float> final(256), gradient(256);
  run.forward(initial, final);
  run.backward(step.final_adjoint(), gradient);
  EXPECT_NEAR(std::accumulate(final.begin(), final.end(), 0.0),
              std::accumulate(initial.begin(), initial.end(), 0.0), 0.05);
  const auto [least, most] = std::ranges::minmax(final);
  EXPECT_GE(least, 0.5F);
  EXPECT_LE(most, 1.5F);
  const auto [faintest, strongest] = std::ranges::minmax(gradient);
  EXPECT_GE(faintest, 0.99F);
  EXPECT_LE(strongest, 2.01F);
}

TEST(StencilStep, SaysItsSizesAndRefusesOthers) {
  const StencilStep step(10, 100, 3);
  EXPECT_EQ(step.bytes(0), (StepBytes{.state = 400, .tape = 800, .adjoint = 400, .scratch = 400}));
  EXPECT_EQ(step.steps(), 10);
  EXPECT_EQ(StencilStep::cells_in(64), 16);
  EXPECT_EQ(StencilStep::cells_in(65), 17);
  EXPECT_THAT(test::message_of([] { StencilStep(1, 15, 1); }), HasSubstr("15 cells"));
  EXPECT_THAT(test::message_of([] { StencilStep(-1, 16, 1); }), HasSubstr("-1 steps"));
  EXPECT_THAT(test::message_of([] { StencilStep(1, 16, 0); }), HasSubstr("0 sweeps"));
}

}  // namespace
}  // namespace ebb::test::stencil_step_test
