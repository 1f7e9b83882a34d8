// SPDX-License-Identifier: Apache-2.0
// Sequences whose length is found while they run, long ones, and the literature's slots.
#include <gtest/gtest.h>

#include "ebb/core/error.h"
#include "ebb/plan/strategies.h"
#include "tests/conformance/walk.h"
#include "tests/thorough.h"

namespace ebb::test::lengths_test {
namespace {

TEST(Lengths, FoundWhileRunning) {
  for (const std::int64_t n : {0, 1, 2, 3, 5, 8, 13, 40, 100, 1000, 2500}) {
    const auto known = small_step(n);
    const Results expected = stored_all(*known);
    for (const bool with_tier : {false, true}) {
      for (const Bytes states : {1, 3, 7}) {
        SCOPED_TRACE(std::to_string(n) + " steps, room for " + std::to_string(states) + " states" +
                     (with_tier ? ", a tier" : ""));
        const auto step = endless_step(n);
        RunOptions options = planned(
            *step, with_tier ? std::vector<SlowTier>{memory_tier(1_MiB)} : std::vector<SlowTier>{});
        // What is expected is less than what comes.
        options.profile.expected_steps = 300;
        options.chain = seconds_of(1000);
        // Live state, adjoint, scratch and a tape; states are 64 bytes here, tapes 128.
        options.budget = 64 * 3 + 128 + 64 * (states + 2);
        ebb::Run run(*step, options);
        for (int again = 0; again < 2; ++again) {
          EXPECT_TRUE(results_of(run, *step) == expected);
          const Report report = run.report();
          EXPECT_EQ(report.measured.steps, n);
          if (n == 0) continue;
          EXPECT_EQ(report.measured.forwards(), report.predicted.forwards);
          EXPECT_EQ(report.measured.peak, report.predicted.peak);
          EXPECT_EQ(step->forwards(), report.predicted.forwards);
        }
      }
    }
  }
}

TEST(Lengths, UnknownNeedsABudgetAndCapacities) {
  const auto step = endless_step(5);
  RunOptions options = planned(*step);
  options.chain = seconds_of(1000);
  EXPECT_THROW(ebb::Run(*step, options), Error);
  options.budget = 10'000;
  options.tiers = {memory_tier(kUnlimited)};
  options.platform = speeds_of(options.tiers);
  EXPECT_THROW(ebb::Run(*step, options), Error);
  options.tiers = {memory_tier(10'000)};
  EXPECT_NO_THROW(ebb::Run(*step, options));
}

TEST(Lengths, Long) {
  const TemporaryFolder folder;
  const auto step = small_step(thorough() ? 5000 : 500);
  const Results expected = stored_all(*step);
  for (const std::string strategy :
       {"auto", "revolve", "msm", "async", "sqrt", "online", "chain"}) {
    SCOPED_TRACE(strategy);
    RunOptions options = planned(*step, {file_tier(folder.path(), 64_MiB)});
    options.strategy = strategy;
    options.budget = 16'000;
    ebb::Run run(*step, options);
    EXPECT_TRUE(results_of(run, *step) == expected);
    const Report report = run.report();
    EXPECT_EQ(report.measured.forwards(), report.predicted.forwards);
    EXPECT_EQ(report.measured.peak, report.predicted.peak);
    EXPECT_LE(report.booked, 16'000);
  }
}

TEST(Lengths, Slots) {
  for (const std::int64_t n : {1, 2, 10, 50}) {
    for (const std::int64_t slots : {1, 2, 4, 7}) {
      SCOPED_TRACE(std::to_string(n) + " steps, " + std::to_string(slots) + " slots");
      const auto step = small_step(n);
      const Results expected = stored_all(*step);
      RunOptions options = planned(*step);
      options.strategy = "revolve";
      options.slots = slots;
      ebb::Run run(*step, options);
      EXPECT_TRUE(results_of(run, *step) == expected);
      EXPECT_EQ(run.report().measured.forwards(), run.report().predicted.forwards);
      EXPECT_EQ(run.report().measured.peak, run.report().predicted.peak);
    }
  }
  // Checkpointing.jl's own test: 50 steps and 7 checkpoints take 105 forwards beside the recorded
  // ones (reference: its runtests).
  const auto step = small_step(50);
  RunOptions options = planned(*step);
  options.strategy = "revolve";
  options.slots = 7;
  ebb::Run run(*step, options);
  results_of(run, *step);
  EXPECT_EQ(run.report().measured.forwards(), 155);
}

TEST(Lengths, SyncWaitsForEveryTransfer) {
  const auto step = small_step(100);
  const Results expected = stored_all(*step);
  RunOptions options = planned(*step, {memory_tier(1_MiB)});
  options.strategy = "disk_revolve";
  options.sync = true;
  options.budget = 1000;
  ebb::Run run(*step, options);
  EXPECT_TRUE(results_of(run, *step) == expected);
  EXPECT_EQ(run.report().measured.peak, run.report().predicted.peak);
}

}  // namespace
}  // namespace ebb::test::lengths_test
