// SPDX-License-Identifier: Apache-2.0
// Spiking networks on a CUDA device against those on the CPU, and against themselves in other budgets; see device_network_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ebb/core/error.h"
#include "ebb/device/device_memory.h"
#include "ebb/run/device_network.h"
#include "tests/gpu/device_run.h"

namespace ebb::test::device_spiking_test {
namespace {

LayerOptions layer_of(const std::string& cell, std::int64_t input, std::int64_t hidden) {
  LayerOptions layer;
  layer.cell = cell;
  layer.input = input;
  layer.hidden = hidden;
  layer.train_tau = layer.train_threshold = true;
  layer.sharpness = 5;
  return layer;
}

DeviceNetworkOptions options_of(const std::string& cell, const std::string& number) {
  DeviceNetworkOptions options;
  options.time_steps = 21;
  options.batch = 3;
  options.layers = {layer_of(cell, 5, 64), layer_of(cell, 0, 32)};
  options.number = number;
  options.chunk = 4;
  return options;
}

class OfSpikingCells : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string missing = cuda_missing();
    if (!missing.empty()) GTEST_SKIP() << missing;
  }
};

void expect_near(const char* what, const std::vector<float>& found,
                 const std::vector<float>& exact) {
  ASSERT_EQ(found.size(), exact.size()) << what;
  float largest = 0, difference = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    largest = std::max(largest, std::abs(exact[i]));
    difference = std::max(difference, std::abs(found[i] - exact[i]));
    ASSERT_FALSE(std::isnan(found[i])) << what << " " << i;
  }
  EXPECT_LE(difference, 1e-4F * largest) << what;
  EXPECT_GT(largest, 0) << what;
}

void expect_cpus(const DeviceNetworkOptions& options) {
  const DeviceData data = device_data(options);
  DeviceNetwork net(options);
  const DeviceResult found = run_on_device(net, options, data), exact = run_on_cpu(options, data);
  EXPECT_EQ(found.y, exact.y) << "other spikes";
  const double rate =
      static_cast<double>(std::ranges::count(exact.y, 1.F)) / static_cast<double>(exact.y.size());
  EXPECT_GT(rate, 0.02);
  EXPECT_LT(rate, 0.9);
  expect_near("the gradient of x", found.of_x, exact.of_x);
  expect_near("the gradient", found.gradient, exact.gradient);
}

TEST_P(OfSpikingCells, AreTheCpus) { expect_cpus(options_of(GetParam(), "f32")); }

TEST_P(OfSpikingCells, WithOtherOptions) {
  DeviceNetworkOptions options = options_of(GetParam(), "f32");
  for (LayerOptions& layer : options.layers) {
    layer.hard_reset = layer.attached_reset = true;
    layer.normalised = false;
    layer.threshold = 0.4;
    layer.surrogate = "arctan";
    layer.bias = false;
  }
  expect_cpus(options);
}

TEST_P(OfSpikingCells, WithoutRecurrentWeightsAndNumbersThatLearn) {
  DeviceNetworkOptions options = options_of(GetParam(), "f32");
  options.layers[0].recurrent = false;
  options.layers[0].hidden = 37;
  options.layers[1].train_tau = options.layers[1].train_threshold = false;
  options.layers[1].gradient_threshold = 0.01;
  expect_cpus(options);
}

TEST_P(OfSpikingCells, AreTheSameBitsInEveryBudget) {
  for (const char* const number : {"bf16", "f32"}) {
    DeviceNetworkOptions options = options_of(GetParam(), number);
    options.chunk = 2;
    const DeviceData data = device_data(options);
    DeviceNetwork unlimited(options);
    const DeviceResult all = run_on_device(unlimited, options, data);
    EXPECT_EQ(run_on_device(unlimited, options, data), all) << "the second time";
    options.budget = least_budget_of(options);
    ASSERT_LT(options.budget, unlimited.report().measured.peak[0]);
    DeviceNetwork net(options);
    EXPECT_EQ(run_on_device(net, options, data), all);
    EXPECT_GT(net.report().measured.forwards(), 11);
    EXPECT_LE(net.report().measured.peak[0], options.budget);
    options.host_budget = 1 << 20;
    DeviceNetwork with_host(options);
    EXPECT_EQ(run_on_device(with_host, options, data), all);
  }
}

// Two halves, the state of one handed to the other, and its gradient back.
TEST_P(OfSpikingCells, StatesJoinTwoRuns) {
  DeviceNetworkOptions options = options_of(GetParam(), "f32");
  options.time_steps = 24;
  const DeviceData data = device_data(options);
  DeviceNetwork whole(options);
  const DeviceResult wanted = run_on_device(whole, options, data);
  options.time_steps = 12;
  DeviceNetwork half(options);
  const auto part = [&](const std::vector<float>& all, bool second) {
    const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
    return second ? std::vector<float>(middle, all.end()) : std::vector<float>(all.begin(), middle);
  };
  DeviceData first{data.parameters, part(data.x, false), part(data.of_y, false), data.initial,
                   data.of_final};
  const std::vector<float> between = run_on_device(half, options, first).final;
  const DeviceData second{data.parameters, part(data.x, true), part(data.of_y, true), between,
                          data.of_final};
  const DeviceResult last = run_on_device(half, options, second);
  first.of_final = last.of_initial;
  const DeviceResult begin = run_on_device(half, options, first);
  EXPECT_EQ(begin.y, part(wanted.y, false));
  EXPECT_EQ(last.y, part(wanted.y, true));
  EXPECT_EQ(last.final, wanted.final);
  expect_near("the gradient of x", begin.of_x, part(wanted.of_x, false));
  expect_near("the gradient of the initial state", begin.of_initial, wanted.of_initial);
  std::vector<float> sum = begin.gradient;
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += last.gradient[i];
  expect_near("the gradient", sum, wanted.gradient);
}

INSTANTIATE_TEST_SUITE_P(All, OfSpikingCells, testing::Values("lif", "alif", "adlif"),
                         [](const auto& of) { return of.param; });

TEST(SpikingOnDevice, RefusesWhatItDoesNotRun) {
  const auto words = [](const DeviceNetworkOptions& options) {
    try {
      device_plan(options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  DeviceNetworkOptions options = options_of("lif", "bf16");
  options.layers[1].synaptic = true;
  EXPECT_NE(words(options).find("layer 1 has synaptic currents"), std::string::npos);
  options = options_of("lif", "bf16");
  options.layers[0].max_activity = 0.5;
  EXPECT_NE(words(options).find("layer 0 has max_activity"), std::string::npos);
}

}  // namespace
}  // namespace ebb::test::device_spiking_test
