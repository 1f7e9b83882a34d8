// SPDX-License-Identifier: Apache-2.0
#include "ebb/run/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

#include "ebb/plan/text.h"
#include "ebb/run/function_step.h"
#include "ebb/run/run.h"
#include "tests/conformance/walk.h"
#include "tests/message_of.h"

namespace ebb::test::profile_test {
namespace {

using ::testing::HasSubstr;

TEST(Profile, MeasuresCosts) {
  // Busy for a known time: backward twice as long as forward.
  const auto busy = [](double seconds) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (std::chrono::steady_clock::now() < until) continue;
  };
  FunctionStep<double> step(
      1000, 8,
      [&](std::int64_t, auto in, auto out) {
        busy(50e-6);
        std::copy(in.begin(), in.end(), out.begin());
      },
      [&](std::int64_t, auto, auto, auto) { busy(100e-6); });
  const Profile found = profile(step, 1_MiB, {memory_tier(1_MiB)});
  EXPECT_EQ(found.chain.steps(), 1000);
  const StepCost cost = found.chain.at(0);
  // What one call of one step takes is never less than the loop does. How it is divided between call
  // and step is a guess where the machine is busy with other things.
  EXPECT_GE(found.chain.call() + cost.forward, 45e-6);
  EXPECT_GE(found.chain.call() + cost.record, 45e-6);
  EXPECT_GE(found.chain.call() + cost.backward, 95e-6);
  for (const double seconds : {cost.forward, cost.record, cost.backward}) {
    EXPECT_GE(seconds, 0);
    EXPECT_TRUE(std::isfinite(seconds));
  }
  EXPECT_EQ(cost.state, 64);
  EXPECT_EQ(cost.tape, 128);
  ASSERT_EQ(found.platform.tiers.size(), 1U);
  EXPECT_EQ(found.platform.fast, 1_MiB);
  EXPECT_GT(found.platform.tiers[0].write_seconds(64), 0);
  EXPECT_GT(found.platform.tiers[0].read_seconds(64), 0);
  EXPECT_GT(found.platform.copy_rate, 0);
  EXPECT_LT(found.platform.copy_rate, 1e13);
  // What it found has a text form that plans read.
  EXPECT_EQ(chain_from_json(to_json(found.chain)).at(0), cost);
  EXPECT_EQ(platform_from_json(to_json(found.platform)), found.platform);
}

TEST(Profile, LeavesNothingBehind) {
  const auto step = small_step(20);
  const Ledger ledger;
  ProfileOptions options;
  options.ledger = ledger;
  profile(*step, kUnlimited, {}, options);
  EXPECT_EQ(ledger.live(), 0);
  EXPECT_GT(ledger.peak(), 0);
  EXPECT_TRUE(step->outputs().empty());
  for (const Field& gradient : step->gradients()) {
    for (const std::byte byte : gradient.bytes) EXPECT_EQ(byte, std::byte{0});
  }
}

TEST(Profile, UnevenStepsAndNone) {
  const auto uneven = uneven_step(20);
  const Profile found = profile(*uneven, kUnlimited, {});
  EXPECT_FALSE(found.chain.is_uniform());
  EXPECT_EQ(found.chain.steps(), 20);
  EXPECT_EQ(found.chain.at(3).state, 64 * ((8 * (5 + 21 % 11) + 63) / 64));
  const auto none = small_step(0);
  EXPECT_EQ(profile(*none, kUnlimited, {}).chain.steps(), 0);
}

// The memory of a slow tier is not the run's fast memory.
TEST(Profile, MemoryTierBesideASmallBudget) {
  const auto step = small_step(300);
  RunOptions options;
  options.budget = 2000;
  options.tiers = {memory_tier(1_MiB)};
  options.profile.step_seconds = options.profile.tier_seconds = 0.02;
  const Ledger host(1_MiB);
  options.host_ledger = host;
  ebb::Run run(*step, options);
  EXPECT_TRUE(results_of(run, *step) == stored_all(*step));
  EXPECT_GT(host.peak(), 0);
}

TEST(Profile, Copies) {
  const Ledger ledger(1_MiB);
  ProfileOptions options;
  options.ledger = ledger;
  EXPECT_THAT(message_of([&] { profile_copies(0, options); }), HasSubstr("states of 0 bytes"));
  EXPECT_TRUE(std::isinf(profile_copies(512_KiB + 1, options)));
  for (const Bytes state : {Bytes{1}, 1_KiB, 300_KiB, 512_KiB}) {
    const double rate = profile_copies(state, options);
    EXPECT_GT(rate, 0) << state;
    EXPECT_LT(rate, 1e13) << state;
  }
  EXPECT_LE(ledger.peak(), 1_MiB);
  EXPECT_EQ(ledger.live(), 0);
  // One that is larger than all that is usually looked at.
  EXPECT_TRUE(std::isfinite(profile_copies(80_MiB)));
}

TEST(Profile, BadInput) {
  const auto step = small_step(20);
  const std::vector<std::byte> wrong(39);
  ProfileOptions options;
  options.initial = wrong;
  EXPECT_THAT(message_of([&] { profile(*step, kUnlimited, {}, options); }),
              HasSubstr("the initial state has 39 bytes"));
  for (const double seconds : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    ProfileOptions wrong_time;
    wrong_time.step_seconds = seconds;
    EXPECT_THAT(message_of([&] { profile(*step, kUnlimited, {}, wrong_time); }),
                HasSubstr("seconds to measure"));
    EXPECT_THAT(message_of([&] { profile_copies(8, wrong_time); }),
                HasSubstr("seconds to measure"));
    EXPECT_THAT(message_of([&] { profile_tier(memory_tier(1_MiB), 8, wrong_time); }),
                HasSubstr("seconds to measure"));
  }
}

// Measure, plan and run in one call, within the budget from the first byte on.
TEST(Profile, WithinARun) {
  const TemporaryFolder folder;
  const auto step = small_step(500);
  const Ledger ledger(4000);
  RunOptions options;
  options.ledger = ledger;
  options.budget = 4000;
  options.tiers = {file_tier(folder.path(), 1_MiB)};
  options.profile.step_seconds = options.profile.tier_seconds = 0.02;
  ebb::Run run(*step, options);
  EXPECT_TRUE(results_of(run, *step) == stored_all(*step));
  EXPECT_LE(ledger.peak(), 4000);
  EXPECT_GT(run.chain().call() + run.chain().at(0).forward, 0);
  EXPECT_TRUE(std::isfinite(run.platform().copy_rate));
  EXPECT_TRUE(folder.empty());
}

}  // namespace
}  // namespace ebb::test::profile_test
