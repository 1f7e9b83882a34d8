// SPDX-License-Identifier: Apache-2.0
// One run of a Step, everything that it left, and what it is held to.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "ebb/plan/strategies.h"
#include "ebb/run/run.h"
#include "tests/conformance/steps.h"
#include "tests/temporary_folder.h"
#include "tests/thorough.h"

namespace ebb::test {

struct Results {
  std::vector<std::byte> final, initial_adjoint;
  std::vector<std::vector<std::byte>> gradients;
  std::vector<double> outputs;
  friend bool operator==(const Results&, const Results&) = default;
};

// What went wrong in the test's own environment is no result: it throws what the run throws.
inline Results results_of(Run& run, TestStep& step) {
  Results results;
  const std::vector<std::byte> initial = step.initial();
  results.final.resize(static_cast<std::size_t>(step.final_bytes()));
  results.initial_adjoint.resize(initial.size());
  std::vector<std::byte> adjoint(results.final.size());
  // Numbers of about 1, as bits of float and of double alike.
  for (std::size_t i = 0; i + 4 <= adjoint.size(); i += 4) {
    adjoint[i + 3] = std::byte{0x3F};
    adjoint[i + 2] = std::byte{0x80} | static_cast<std::byte>(i % 64);
  }
  run.forward(std::span<const std::byte>(initial), std::span(results.final));
  run.backward(std::span<const std::byte>(adjoint), std::span(results.initial_adjoint));
  for (const Field& field : step.gradients()) {
    results.gradients.emplace_back(field.bytes.begin(), field.bytes.end());
  }
  results.outputs = step.outputs();
  return results;
}

// Costs that no stopwatch took: plans are the same each time.
inline Chain seconds_of(std::int64_t steps) {
  return Chain::uniform(steps, {.forward = 1e-6, .record = 1.2e-6, .backward = 2e-6}, 1e-7);
}
inline Platform speeds_of(const std::vector<SlowTier>& tiers) {
  Platform platform;
  double rate = 4e9;
  for (const SlowTier& tier : tiers) {
    platform.tiers.push_back({.name = tier.name,
                              .capacity = tier.capacity,
                              .write_rate = rate,
                              .read_rate = rate,
                              .write_latency = 1e-6,
                              .read_latency = 1e-6});
    rate /= 4;
  }
  return platform;
}

inline RunOptions planned(const TestStep& step, std::vector<SlowTier> tiers = {}) {
  RunOptions options;
  options.platform = speeds_of(tiers);
  options.tiers = std::move(tiers);
  options.chain = seconds_of(std::max<std::int64_t>(0, step.steps()));
  // Real speeds are not the plan's.
  options.replan_factor = 0;
  return options;
}

inline Results stored_all(TestStep& step) {
  RunOptions options = planned(step);
  options.strategy = "store_all";
  Run run(step, options);
  return results_of(run, step);
}

inline void expect_as_predicted(const Report& report) {
  EXPECT_EQ(report.measured.advances, report.predicted.advances);
  EXPECT_EQ(report.measured.records, report.predicted.records);
  EXPECT_EQ(report.measured.actions, report.predicted.actions);
  EXPECT_EQ(report.measured.peak, report.predicted.peak);
  EXPECT_EQ(report.measured.extra_forwards, 0);
  for (std::size_t k = 0; k < report.tiers.size(); ++k) {
    EXPECT_EQ(report.measured.tiers[k].written.bytes, report.predicted.moved[k].written);
    EXPECT_EQ(report.measured.tiers[k].read.bytes, report.predicted.moved[k].read);
  }
}

// Runs `step` as the options say, twice with the same Run, and compares with `expected`.
inline void check(TestStep& step, const RunOptions& options, const Results& expected) {
  Run run(step, options);
  for (int again = 0; again < 2; ++again) {
    EXPECT_TRUE(results_of(run, step) == expected) << "other bits than store_all";
    const Report report = run.report();
    expect_as_predicted(report);
    EXPECT_EQ(step.forwards(), report.predicted.forwards);
    if (step.is_uniform()) {
      EXPECT_EQ(report.booked, report.predicted.peak[0]);
    }
    EXPECT_LE(report.booked, options.budget);
  }
}

// From the least on; none where the strategy cannot run at all.
inline std::vector<Bytes> budgets(TestStep& step, RunOptions options, const std::string& strategy) {
  options.strategy = "store_all";
  const Run ample(step, options);
  const std::optional<Bytes> least =
      least_budget(ample.chain(), ample.platform(),
                   {.strategy = strategy, .working = ample.plan().machine.working});
  if (!least) return {};
  const Bytes most = ample.plan().prediction.peak[0];
  if (most <= *least) return {*least};
  if (!thorough()) return {*least + (most - *least) / 7};
  return {*least, *least + (most - *least) / 7, *least + (most - *least) / 2};
}

}  // namespace ebb::test
