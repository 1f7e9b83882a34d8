// SPDX-License-Identifier: Apache-2.0
// Networks with a readout on a CUDA device against those on the CPU, and against themselves in other budgets; see
// device_network_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ebb/core/error.h"
#include "ebb/device/device_memory.h"
#include "ebb/run/device_network.h"
#include "tests/gpu/device_run.h"

namespace ebb::test::device_readout_test {
namespace {

DeviceNetworkOptions options_of(const std::string& cell, const std::string& readout) {
  DeviceNetworkOptions options;
  options.time_steps = 21;
  options.batch = 3;
  LayerOptions below{.cell = cell, .input = 5, .hidden = 64};
  if (cell == "lif") below.sharpness = 5;
  LayerOptions top{.cell = readout, .hidden = 7};
  top.train_tau = readout == "leaky";
  if (readout == "leaky") top.tau_mem = 5;
  options.layers = {below, top};
  options.number = "f32";
  options.chunk = 4;
  return options;
}

class Readouts : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  void SetUp() override {
    const std::string missing = cuda_missing();
    if (!missing.empty()) GTEST_SKIP() << missing;
  }
  DeviceNetworkOptions options() const {
    return options_of(std::get<0>(GetParam()), std::get<1>(GetParam()));
  }
};

void expect_near(const char* what, const std::vector<float>& found, const std::vector<float>& exact,
                 float allowed) {
  ASSERT_EQ(found.size(), exact.size()) << what;
  float largest = 0, difference = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    largest = std::max(largest, std::abs(exact[i]));
    difference = std::max(difference, std::abs(found[i] - exact[i]));
    ASSERT_FALSE(std::isnan(found[i])) << what << " " << i;
  }
  EXPECT_LE(difference, allowed * largest) << what;
  EXPECT_GT(largest, 0) << what;
}

TEST_P(Readouts, AreTheCpus) {
  DeviceNetworkOptions own = options();
  for (const bool bias : {true, false}) {
    own.layers.back().bias = bias;
    const DeviceData data = device_data(own);
    DeviceNetwork net(own);
    const DeviceResult found = run_on_device(net, own, data), exact = run_on_cpu(own, data);
    expect_near("y", found.y, exact.y, 1e-4F);
    expect_near("the gradient of x", found.of_x, exact.of_x, 1e-4F);
    expect_near("the gradient", found.gradient, exact.gradient, 1e-4F);
  }
}

// The CPU's leaky readout has no use for it either.
TEST_P(Readouts, NormalisedIsForCellsThatSpike) {
  DeviceNetworkOptions own = options();
  const DeviceData data = device_data(own);
  DeviceNetwork net(own);
  const DeviceResult wanted = run_on_device(net, own, data);
  own.layers.back().normalised = false;
  DeviceNetwork other(own);
  EXPECT_EQ(run_on_device(other, own, data), wanted);
  EXPECT_EQ(run_on_cpu(own, data), run_on_cpu(options(), data));
}

TEST_P(Readouts, AreTheSameBitsInEveryBudget) {
  for (const char* const number : {"bf16", "f32"}) {
    DeviceNetworkOptions own = options();
    own.number = number;
    own.chunk = 2;
    const DeviceData data = device_data(own);
    DeviceNetwork unlimited(own);
    const DeviceResult all = run_on_device(unlimited, own, data);
    own.budget = least_budget_of(own);
    ASSERT_LT(own.budget, unlimited.report().measured.peak[0]);
    DeviceNetwork net(own);
    EXPECT_EQ(run_on_device(net, own, data), all);
    EXPECT_LE(net.report().measured.peak[0], own.budget);
    own.host_budget = 1 << 20;
    DeviceNetwork with_host(own);
    EXPECT_EQ(run_on_device(with_host, own, data), all);
  }
}

// Two halves, the state of one handed to the other, and its gradient back.
TEST_P(Readouts, StatesJoinTwoRuns) {
  DeviceNetworkOptions own = options();
  own.time_steps = 24;
  const DeviceData data = device_data(own);
  DeviceNetwork whole(own);
  const DeviceResult wanted = run_on_device(whole, own, data);
  own.time_steps = 12;
  DeviceNetwork half(own);
  const auto part = [&](const std::vector<float>& all, bool second) {
    const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
    return second ? std::vector<float>(middle, all.end()) : std::vector<float>(all.begin(), middle);
  };
  DeviceData first{data.parameters, part(data.x, false), part(data.of_y, false), data.initial,
                   data.of_final};
  const std::vector<float> between = run_on_device(half, own, first).final;
  const DeviceData second{data.parameters, part(data.x, true), part(data.of_y, true), between,
                          data.of_final};
  const DeviceResult last = run_on_device(half, own, second);
  first.of_final = last.of_initial;
  const DeviceResult begin = run_on_device(half, own, first);
  EXPECT_EQ(last.y, part(wanted.y, true));
  EXPECT_EQ(last.final, wanted.final);
  expect_near("the gradient of x", begin.of_x, part(wanted.of_x, false), 1e-4F);
  std::vector<float> sum = begin.gradient;
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += last.gradient[i];
  expect_near("the gradient", sum, wanted.gradient, 1e-4F);
}

INSTANTIATE_TEST_SUITE_P(All, Readouts,
                         testing::Combine(testing::Values("lstm", "lif"),
                                          testing::Values("linear", "leaky")),
                         [](const auto& of) {
                           return std::get<0>(of.param) + "_" + std::get<1>(of.param);
                         });

}  // namespace
}  // namespace ebb::test::device_readout_test
