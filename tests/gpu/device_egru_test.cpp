// SPDX-License-Identifier: Apache-2.0
// Networks of egru, whose units are heard now and then, on a CUDA device against those on the CPU, and against themselves in other
// budgets; see device_network_test.cpp, where some are always heard and the others never.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ebb/cell/cell.h"
#include "ebb/core/random.h"
#include "ebb/device/device_memory.h"
#include "ebb/run/device_network.h"
#include "tests/gpu/device_run.h"

namespace ebb::test::device_egru_test {
namespace {

LayerOptions layer_of(std::int64_t input, std::int64_t hidden) {
  LayerOptions layer;
  layer.cell = "egru";
  layer.input = input;
  layer.hidden = hidden;
  layer.train_threshold = true;
  return layer;
}

DeviceNetworkOptions options_of(const std::string& number) {
  DeviceNetworkOptions options;
  options.time_steps = 21;
  options.batch = 3;
  options.layers = {layer_of(5, 64), layer_of(0, 32)};
  options.number = number;
  options.chunk = 4;
  return options;
}

class Egru : public testing::Test {
 protected:
  void SetUp() override {
    const std::string missing = cuda_missing();
    if (!missing.empty()) GTEST_SKIP() << missing;
  }
};

// Calls `call` with the place of each threshold in the parameters.
template <class Call>
void for_thresholds(const DeviceNetworkOptions& options, std::int64_t layer, const Call& call) {
  const Network<float> net = network_of(options);
  for (const NetworkParameter& own : net.layout()) {
    if (own.name != "threshold_l" + std::to_string(layer)) continue;
    for (std::int64_t i = 0; i < own.size; ++i) call(static_cast<std::size_t>(own.offset + i));
  }
}

DeviceData data_of(const DeviceNetworkOptions& options) {
  DeviceData data = device_data(options);
  const Random random(10);  // no c comes within 1e-5 of its threshold: rounding changes no event
  for (std::size_t k = 0; k < options.layers.size(); ++k) {
    for_thresholds(options, static_cast<std::int64_t>(k), [&](std::size_t at) {
      data.parameters[at] = 0.05F + 0.2F * static_cast<float>(random.uniform(at));
    });
  }
  return data;
}

void expect_near(const char* what, const std::vector<float>& found,
                 const std::vector<float>& exact) {
  ASSERT_EQ(found.size(), exact.size()) << what;
  float largest = 0, difference = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    largest = std::max(largest, std::abs(exact[i]));
    difference = std::max(difference, std::abs(found[i] - exact[i]));
    ASSERT_TRUE(std::isfinite(found[i])) << what << " " << i;
  }
  EXPECT_LE(difference, 1e-4F * largest) << what;
  EXPECT_GT(largest, 0) << what;
}

std::vector<float> thresholds_of(const DeviceNetworkOptions& options, std::int64_t layer,
                                 const std::vector<float>& gradient) {
  std::vector<float> found;
  for_thresholds(options, layer, [&](std::size_t at) { found.push_back(gradient[at]); });
  return found;
}

void expect_cpus(const DeviceNetworkOptions& options) {
  const DeviceData data = data_of(options);
  DeviceNetwork net(options);
  const DeviceResult found = run_on_device(net, options, data), exact = run_on_cpu(options, data);
  // Being heard is a jump: with other events all that follows would be other numbers.
  ASSERT_EQ(found.y.size(), exact.y.size());
  for (std::size_t i = 0; i < exact.y.size(); ++i)
    ASSERT_EQ(found.y[i] != 0, exact.y[i] != 0) << "other events: " << i;
  const double rate = 1 - static_cast<double>(std::ranges::count(exact.y, 0.F)) /
                              static_cast<double>(exact.y.size());
  EXPECT_GT(rate, 0.02);
  EXPECT_LT(rate, 0.9);
  expect_near("y", found.y, exact.y);
  expect_near("the final state", found.final, exact.final);
  expect_near("the gradient of x", found.of_x, exact.of_x);
  expect_near("the gradient of the initial state", found.of_initial, exact.of_initial);
  expect_near("the gradient", found.gradient, exact.gradient);
  for (std::size_t k = 0; k < options.layers.size(); ++k) {
    const auto layer = static_cast<std::int64_t>(k);
    const std::vector<float> own = thresholds_of(options, layer, found.gradient);
    if (options.layers[k].train_threshold) {
      expect_near("the gradient of thresholds", own, thresholds_of(options, layer, exact.gradient));
    } else {
      EXPECT_EQ(own, std::vector<float>(own.size(), 0.F)) << "thresholds that do not learn";
    }
  }
}

TEST_F(Egru, IsTheCpus) { expect_cpus(options_of("f32")); }

TEST_F(Egru, WithEverySurrogate) {
  for (const SurrogateRow& row : surrogates()) {
    SCOPED_TRACE(row.name);
    DeviceNetworkOptions options = options_of("f32");
    options.layers[0].surrogate = row.name;
    options.layers[1].surrogate = row.name;
    options.layers[1].sharpness = 2 * row.sharpness;
    expect_cpus(options);
  }
}

TEST_F(Egru, WithoutBiasAndWithThresholdsThatDoNotLearn) {
  DeviceNetworkOptions options = options_of("f32");
  options.layers[0].bias = false;
  options.layers[0].train_threshold = false;
  expect_cpus(options);
  options.layers[1].bias = options.layers[1].train_threshold = false;
  expect_cpus(options);
}

TEST_F(Egru, WithSparseWeights) {
  DeviceNetworkOptions options = options_of("f32");
  for (LayerOptions& layer : options.layers) layer.input_density = layer.recurrent_density = 0.5;
  expect_cpus(options);
}

TEST_F(Egru, OfAnyShape) {
  const Random random(17);
  for (std::uint64_t i = 0; i < 6; ++i) {
    const auto drawn = [&](std::uint64_t what, std::int64_t least, std::int64_t most) {
      return least + static_cast<std::int64_t>(random.uniform(8 * i + what) *
                                               static_cast<double>(most - least + 1));
    };
    DeviceNetworkOptions options = options_of("f32");
    options.time_steps = drawn(0, 1, 30);
    options.batch = drawn(1, 1, 20);
    options.layers = {layer_of(drawn(2, 1, 9), 16 * drawn(3, 1, 4)),
                      layer_of(0, 16 * drawn(4, 1, 3))};
    options.chunk = drawn(5, 1, 9);
    SCOPED_TRACE(std::to_string(options.time_steps) + " steps of " + std::to_string(options.batch));
    expect_cpus(options);
  }
}

TEST_F(Egru, IsTheSameBitsInEveryBudget) {
  for (const char* const number : {"bf16", "f32"}) {
    DeviceNetworkOptions options = options_of(number);
    options.chunk = 2;
    const DeviceData data = data_of(options);
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

void expect_near(const std::vector<float>& found, const std::vector<float>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  float largest = 0;
  for (const float number : wanted) largest = std::max(largest, std::abs(number));
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_NEAR(found[i], wanted[i], 2e-5F * largest) << i;
  }
}

// What is heard is rounded as states are, so that a step does not see where its chunk began. Products of other sizes may have other last
// bits.
TEST_F(Egru, HasTheSameOutputsInEveryChunk) {
  for (const char* const number : {"bf16", "f16", "tf32", "f32"}) {
    DeviceNetworkOptions options = options_of(number);
    const DeviceData data = data_of(options);
    options.chunk = 1;
    DeviceNetwork one(options);
    const DeviceResult wanted = run_on_device(one, options, data);
    options.chunk = 8;
    DeviceNetwork eight(options);
    const DeviceResult found = run_on_device(eight, options, data);
    SCOPED_TRACE(number);
    expect_near(found.y, wanted.y);
    expect_near(found.final, wanted.final);
    expect_near(found.of_initial, wanted.of_initial);
  }
}

}  // namespace
}  // namespace ebb::test::device_egru_test
