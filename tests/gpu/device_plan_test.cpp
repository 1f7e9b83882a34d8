// SPDX-License-Identifier: Apache-2.0
// What a network on a device is planned to do, which needs no device.
#include <gtest/gtest.h>

#include <cstdlib>

#include "ebb/cell/gated.h"
#include "ebb/core/error.h"
#include "ebb/device/device_memory.h"
#include "ebb/run/device_network.h"

namespace ebb::test::device_plan_test {
namespace {

DeviceNetworkOptions options_of(std::int64_t time_steps) {
  DeviceNetworkOptions options;
  options.time_steps = time_steps;
  options.batch = 64;
  options.layers = {{.cell = "lstm", .input = 64, .hidden = 512}};
  return options;
}

std::string words_of(const DeviceNetworkOptions& options,
                     ErrorCode code = ErrorCode::invalid_argument) {
  try {
    device_plan(options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "no error";
}

TEST(DevicePlan, CountsWhatAChunkTakes) {
  DeviceNetworkOptions options = options_of(1000);
  options.chunk = 100;
  const DevicePlan found = device_plan(options);
  const Bytes unit = Bytes{64} * 512;  // numbers of a row
  EXPECT_EQ(found.chunk, 100);
  EXPECT_EQ(found.state_bytes, (2 + 4) * unit);
  // Four gates and h of 2 bytes, c of 4; h and c before the chunk.
  EXPECT_EQ(found.tape_bytes, 100 * Bytes{4 * 2 + 2 + 4} * unit + (2 + 4) * unit);
  EXPECT_EQ(found.plan.prediction.forwards, 10);
  EXPECT_EQ(found.plan.prediction.advances, 0);
}

// Three gates, h and what r multiplies of 2 bytes, c of 4.
TEST(DevicePlan, CountsWhatAChunkOfAnEgruTakes) {
  DeviceNetworkOptions options = options_of(1000);
  options.layers[0].cell = "egru";
  options.chunk = 100;
  const DevicePlan found = device_plan(options);
  const Bytes unit = Bytes{64} * 512;
  EXPECT_EQ(found.state_bytes, (2 + 4) * unit);
  EXPECT_EQ(found.tape_bytes, 100 * Bytes{3 * 2 + 2 + 2 + 4} * unit + (2 + 4) * unit);
}

// Products are with whole matrices, whatever is 0 in them.
TEST(DevicePlan, OfSparseWeightsIsThatOfFullOnes) {
  DeviceNetworkOptions options = options_of(4096);
  options.layers.push_back({.cell = "lif", .hidden = 256});
  options.layers.push_back({.cell = "linear", .hidden = 16});
  options.budget = Bytes{300} << 20;
  const DevicePlan full = device_plan(options);
  for (LayerOptions& layer : options.layers) layer.input_density = layer.recurrent_density = 0.01;
  const DevicePlan sparse = device_plan(options);
  EXPECT_EQ(sparse.chunk, full.chunk);
  EXPECT_EQ(sparse.plan.prediction.seconds, full.plan.prediction.seconds);
  EXPECT_EQ(sparse.plan.prediction.peak, full.plan.prediction.peak);
}

TEST(DevicePlan, AnyBudgetFromTheLeastOnIsKept) {
  DeviceNetworkOptions options = options_of(4096);
  options.budget = 1;
  Bytes least = 0;
  try {
    device_plan(options);
    FAIL() << "one byte is enough";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::infeasible_budget);
    least = error.least_budget().value();
  }
  options.budget = kUnlimited;
  const Bytes most = device_plan(options).plan.prediction.peak[0];
  std::int64_t forwards = 0;
  for (const Bytes budget : {least, 8 * least, most / 8, most / 2, most}) {
    options.budget = budget;
    const DevicePlan found = device_plan(options);
    EXPECT_LE(found.plan.prediction.peak[0], budget);
    const std::int64_t steps = (options.time_steps + found.chunk - 1) / found.chunk;
    forwards = found.plan.prediction.forwards * found.chunk;
    if (budget < most) {
      EXPECT_GT(found.plan.prediction.forwards, steps);
    }
  }
  EXPECT_EQ(forwards, options.time_steps);
}

TEST(DevicePlan, IsTheSameEveryTime) {
  DeviceNetworkOptions options = options_of(3000);
  options.budget = 200 << 20;
  const DevicePlan one = device_plan(options), other = device_plan(options);
  EXPECT_EQ(one.chunk, other.chunk);
  EXPECT_EQ(one.plan.prediction.forwards, other.plan.prediction.forwards);
}

// The longest chunk that fits leaves room for five states.
TEST(DevicePlan, NoOtherChunkIsFaster) {
  DeviceNetworkOptions options = options_of(20'000);
  options.layers[0].hidden = 1024;
  options.budget = 100 << 20;
  const double chosen = device_plan(options).plan.prediction.seconds;
  for (const std::int64_t chunk : {16, 32, 64}) {
    options.chunk = chunk;
    EXPECT_LE(chosen, device_plan(options).plan.prediction.seconds) << chunk;
  }
}

TEST(DevicePlan, StatesGoToTheHostWhereThatIsFaster) {
  DeviceNetworkOptions options = options_of(8192);
  options.budget = 100 << 20;
  const double alone = device_plan(options).plan.prediction.seconds;
  options.host_budget = Bytes{1} << 30;
  const DevicePlan found = device_plan(options);
  EXPECT_LT(found.plan.prediction.seconds, alone);
  EXPECT_GT(found.plan.prediction.peak.at(1), 0);
}

TEST(DevicePlan, SaysWhatIsWrong) {
  DeviceNetworkOptions options = options_of(10);
  options.layers[0].cell = "egru";
  options.layers[0].recurrent = false;
  EXPECT_NE(words_of(options).find("layer 0 has no recurrent weights, which egru needs"),
            std::string::npos);
  options = options_of(10);
  options.number = "f64";
  EXPECT_NE(words_of(options).find("must be bf16, f16, tf32 or f32"), std::string::npos);
  options = options_of(10);
  options.layers[0].recurrent_density = 2;
  EXPECT_NE(words_of(options).find("recurrent weights: the density is 2"), std::string::npos);
  options = options_of(10);
  options.layers.push_back({.cell = "linear", .hidden = 8});
  options.layers.push_back({.cell = "lstm", .hidden = 32});
  EXPECT_NE(words_of(options).find("layer 1 is a readout; on a device it must be the last"),
            std::string::npos);
  options = options_of(10);
  options.budget = -1;
  EXPECT_NE(words_of(options).find("budget"), std::string::npos);
  options = options_of(10);
  options.host_budget = 100;
  EXPECT_NE(words_of(options, ErrorCode::infeasible_budget).find("host_budget is 100 bytes"),
            std::string::npos);
  options = options_of(10);
  options.layers.clear();
  EXPECT_NE(words_of(options).find("1 layer or more"), std::string::npos);
  EXPECT_NE(words_of(options_of(0)).find("time steps"), std::string::npos);
  options = options_of(10);
  options.layers[0].hidden = 0;
  EXPECT_NE(words_of(options), "no error");
}

TEST(DevicePlan, ANetworkSaysWhyThereIsNoDevice) {
  const std::string missing = cuda_missing();
  if (missing.empty()) GTEST_SKIP() << "there is a device";
  try {
    const DeviceNetwork net(options_of(10));
    FAIL() << "it was made";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    EXPECT_NE(std::string(error.what()).find(missing), std::string::npos) << error.what();
  }
}

// In a process of its own, which sees no device even where there is one.
TEST(DevicePlanDeathTest, KernelsSayWhyThereIsNoDevice) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto ask = [] {
    ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
    const std::string why = gated_unfit({.steps = 1, .batch = 1, .hidden = 32});
    std::exit(why.empty() ? 1 : 0);
  };
  EXPECT_EXIT(ask(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace ebb::test::device_plan_test
