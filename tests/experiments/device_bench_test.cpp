// SPDX-License-Identifier: Apache-2.0
// The experiments on a GPU where there is none; tests/stand_in_cli runs them on a device that the host plays.
#include <gtest/gtest.h>

#include "ebb/core/error.h"
#include "ebb/device/device_memory.h"
#include "ebb/experiments/device_async_bench.h"
#include "ebb/experiments/device_double_bench.h"
#include "ebb/experiments/device_gruslys_bench.h"

namespace ebb::test::device_bench_test {
namespace {

template <class Experiment>
void expect_unavailable(const Experiment& run) {
  try {
    run();
    ADD_FAILURE() << "it ran";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    EXPECT_NE(std::string(error.what()).find(cuda_missing()), std::string::npos) << error.what();
  }
}

TEST(DeviceBench, SaysWhyThereIsNoDevice) {
  if (cuda_missing().empty()) GTEST_SKIP() << "there is a device";
  expect_unavailable([] { run_device_double_bench({}); });
  expect_unavailable([] { run_device_gruslys_bench({}); });
  expect_unavailable([] { run_device_async_bench({}); });
}

TEST(DeviceTrials, PlansWithoutADevice) {
  DeviceNet net;
  net.layer = {.cell = "lif", .input = 8};
  net.batch = 4;
  const DeviceTrials trials(net, 1, {});
  DeviceTrial asked;
  asked.time_steps = 100;
  asked.hidden = 64;
  asked.trial.strategy = "store_all";
  asked.trial.budget = 1_MiB;
  const auto found = trials.planned(asked);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->plan.strategy, "store_all");
  asked.trial.budget = 1_KiB;
  EXPECT_FALSE(trials.planned(asked).has_value());
}

TEST(DeviceTrials, RatiosAreOfATimeStep) {
  DeviceTrial one, twice;
  one.time_steps = 10;
  twice.time_steps = 20;
  one.trial.fits = twice.trial.fits = true;
  one.trial.predicted.seconds = 1;
  one.trial.measured.seconds = 2;
  twice.trial.predicted.seconds = 3;
  twice.trial.measured.seconds = 5;
  set_ratios(twice, one);
  EXPECT_DOUBLE_EQ(twice.trial.predicted_ratio, 1.5);
  EXPECT_DOUBLE_EQ(twice.trial.measured_ratio, 1.25);
  twice.trial.slowest = 6;
  EXPECT_DOUBLE_EQ(twice.trial.spread(), 0.2);
}

}  // namespace
}  // namespace ebb::test::device_bench_test
