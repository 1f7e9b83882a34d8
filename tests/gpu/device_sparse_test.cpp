// SPDX-License-Identifier: Apache-2.0
// Networks with sparse weights on a CUDA device against those on the CPU, and against themselves in other budgets; see
// device_network_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ebb/core/error.h"
#include "ebb/device/device_memory.h"
#include "ebb/run/device_network.h"
#include "tests/gpu/device_run.h"

namespace ebb::test::device_sparse_test {
namespace {

LayerOptions layer_of(const std::string& cell, std::int64_t input, std::int64_t hidden,
                      double input_density, double recurrent_density) {
  LayerOptions layer;
  layer.cell = cell;
  layer.input = input;
  layer.hidden = hidden;
  layer.input_density = input_density;
  layer.recurrent_density = recurrent_density;
  layer.seed = 7;
  if (cell.ends_with("lif")) {
    layer.train_tau = layer.train_threshold = true;
    layer.sharpness = 5;
  }
  return layer;
}

DeviceNetworkOptions options_of(const std::string& cell, double density) {
  DeviceNetworkOptions options;
  options.time_steps = 13;
  options.batch = 3;
  options.layers = {layer_of(cell, 21, 64, density, density),
                    layer_of(cell, 0, 32, density, density)};
  options.number = "f32";
  options.chunk = 4;
  return options;
}

void expect_near(const char* what, const std::vector<float>& found,
                 const std::vector<float>& exact) {
  ASSERT_EQ(found.size(), exact.size()) << what;
  float largest = 0, difference = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    largest = std::max(largest, std::abs(exact[i]));
    difference = std::max(difference, std::abs(found[i] - exact[i]));
    ASSERT_FALSE(std::isnan(found[i])) << what << " " << i;
  }
  // Where few weights pass a gradient on, little of it is left, with what larger numbers were rounded by.
  EXPECT_LE(difference, 1e-4F * std::max(largest, 1e-4F)) << what;
}

void expect_near(const DeviceResult& found, const DeviceResult& exact) {
  expect_near("y", found.y, exact.y);
  expect_near("the gradient of x", found.of_x, exact.of_x);
  expect_near("the gradient", found.gradient, exact.gradient);
  EXPECT_TRUE(std::ranges::any_of(exact.gradient, [](float x) { return x != 0; }));
}

void expect_cpus(const DeviceNetworkOptions& options) {
  const DeviceData data = device_data(options);
  DeviceNetwork net(options);
  expect_near(run_on_device(net, options, data), run_on_cpu(options, data));
}

class OnDevice : public testing::Test {
 protected:
  void SetUp() override {
    const std::string missing = cuda_missing();
    if (!missing.empty()) GTEST_SKIP() << missing;
  }
};

class SparseCells : public OnDevice, public testing::WithParamInterface<std::string> {};

TEST_P(SparseCells, AreTheCpus) {
  for (const double density : {0.001, 0.1, 0.5}) {
    SCOPED_TRACE(density);
    expect_cpus(options_of(GetParam(), density));
  }
}

TEST_P(SparseCells, BesideFullOnes) {
  DeviceNetworkOptions options = options_of(GetParam(), 1);
  options.layers[0].input_density = 0.3;
  options.layers[1].recurrent_density = 0.2;
  options.layers[1].bias = false;
  options.layers.push_back(layer_of(GetParam(), 0, 32, 1, 1));
  expect_cpus(options);
}

TEST_P(SparseCells, BelowAReadout) {
  for (const char* const readout : {"linear", "leaky"}) {
    SCOPED_TRACE(readout);
    DeviceNetworkOptions options = options_of(GetParam(), 0.2);
    options.layers.push_back({.cell = readout, .hidden = 5, .input_density = 0.4});
    options.layers.back().train_tau = readout == std::string("leaky");
    expect_cpus(options);
  }
}

// Every third row has weights, and none is recurrent: a layer without any is still there.
TEST_P(SparseCells, OfWhichFewOrNoneAreThere) {
  DeviceNetworkOptions options = options_of(GetParam(), 1e-12);
  const std::int64_t gates = GetParam() == "lstm" ? 4 : GetParam() == "gru" ? 3 : 1;
  Pattern pattern;
  pattern.starts.push_back(0);
  for (std::int64_t row = 0; row < gates * 64; ++row) {
    if (row % 3 == 0) pattern.columns.insert(pattern.columns.end(), {0, 7, 20});
    pattern.starts.push_back(static_cast<std::int64_t>(pattern.columns.size()));
  }
  options.layers[0].input_pattern = pattern;
  expect_cpus(options);
  DeviceNetwork net(options);
  EXPECT_EQ(net.layout()[0].size, static_cast<std::int64_t>(pattern.columns.size()));
  EXPECT_EQ(net.layout()[1].name, "weight_hh_l0");
  EXPECT_EQ(net.layout()[1].size, 0);
}

TEST_P(SparseCells, AreTheSameBitsInEveryBudget) {
  for (const char* const number : {"bf16", "f32"}) {
    DeviceNetworkOptions options = options_of(GetParam(), 0.1);
    options.number = number;
    options.chunk = 2;
    const DeviceData data = device_data(options);
    DeviceNetwork unlimited(options);
    const DeviceResult all = run_on_device(unlimited, options, data);
    EXPECT_EQ(run_on_device(unlimited, options, data), all) << "the second time";
    options.budget = least_budget_of(options);
    ASSERT_LT(options.budget, unlimited.report().measured.peak[0]);
    DeviceNetwork net(options);
    EXPECT_EQ(run_on_device(net, options, data), all);
    EXPECT_GT(net.report().measured.forwards(), 7);
    EXPECT_LE(net.report().measured.peak[0], options.budget);
    options.host_budget = 1 << 20;
    DeviceNetwork with_host(options);
    EXPECT_EQ(run_on_device(with_host, options, data), all);
  }
}

TEST_P(SparseCells, ParametersAreANetworks) {
  const DeviceNetworkOptions options = options_of(GetParam(), 0.1);
  DeviceNetwork net(options);
  Network<float> cpu = network_of(options);
  std::vector<float> values(cpu.values().size());
  net.copy_values(values);
  EXPECT_TRUE(std::ranges::equal(values, cpu.values()));
  ASSERT_EQ(net.layout().size(), cpu.layout().size());
  for (std::size_t i = 0; i < net.layout().size(); ++i) {
    EXPECT_EQ(net.layout()[i].name, cpu.layout()[i].name);
    EXPECT_EQ(net.layout()[i].shape, cpu.layout()[i].shape);
    EXPECT_EQ(net.layout()[i].offset, cpu.layout()[i].offset);
  }
  const std::vector<float> others = made_up(static_cast<std::int64_t>(values.size()), 1, "f32", 9);
  net.set_values(others);
  net.copy_values(values);
  EXPECT_EQ(values, others);
}

INSTANTIATE_TEST_SUITE_P(All, SparseCells,
                         testing::Values("lstm", "gru", "rnn", "rnn_relu", "lif", "alif", "adlif"),
                         [](const auto& of) { return of.param; });

class SparseOnDevice : public OnDevice {};

TEST_F(SparseOnDevice, AllBytesAreCounted) {
  DeviceNetworkOptions options = options_of("lif", 1);
  options.number = "bf16";
  options.layers.pop_back();
  const Bytes full = DeviceNetwork(options).standing_bytes();
  options.layers[0].input_density = options.layers[0].recurrent_density = 0.1;
  const Network<float> cpu = network_of(options);
  const auto up = [](Bytes bytes) { return (bytes + 255) / 256 * 256; };
  Bytes wanted = full;
  const auto count = [&](const Pattern& pattern, Bytes weights) {
    const auto there = static_cast<Bytes>(pattern.columns.size());
    wanted -= 2 * 4 * (weights - there);         // parameters and their gradient
    wanted += up(8 * (64 + 1)) + up(4 * there);  // where they are
    wanted += up(4 * weights);                   // the whole gradient
  };
  count(*cpu.input_pattern(0), 64 * 21);
  count(*cpu.recurrent_pattern(0), 64 * 64);
  EXPECT_EQ(DeviceNetwork(options).standing_bytes(), wanted);
  EXPECT_EQ(device_plan(options).standing_bytes, wanted);
}

// Of each number of the sparse net.
std::vector<std::size_t> places_in(const DeviceNetwork& full, const Network<float>& sparse) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < sparse.layout().size(); ++i) {
    const NetworkParameter &own = sparse.layout()[i], &its = full.layout()[i];
    const std::int64_t layer = own.name.back() - '0';
    const Pattern* const pattern = own.name.starts_with("weight_ih")
                                       ? sparse.input_pattern(layer)
                                       : sparse.recurrent_pattern(layer);
    const std::vector<std::int64_t> rows = rows_of(sparse, own);
    for (std::size_t e = 0; e < rows.size(); ++e) {
      const std::int64_t place =
          own.name.starts_with("weight") ? rows[e] * its.shape[1] + pattern->columns[e] : rows[e];
      places.push_back(static_cast<std::size_t>(its.offset + place));
    }
  }
  return places;
}

TEST_F(SparseOnDevice, IsAFullOneWithZeros) {
  for (const char* const cell : {"gru", "alif"}) {
    DeviceNetworkOptions options = options_of(cell, 0.2);
    options.number = "bf16";
    const DeviceData data = device_data(options);
    DeviceNetwork net(options);
    const DeviceResult found = run_on_device(net, options, data);
    const Network<float> cpu = network_of(options);
    for (LayerOptions& layer : options.layers) layer.input_density = layer.recurrent_density = 1;
    DeviceNetwork full(options);
    const std::vector<std::size_t> places = places_in(full, cpu);
    DeviceData whole = device_data(options);
    std::ranges::fill(whole.parameters, 0.F);
    for (std::size_t i = 0; i < places.size(); ++i)
      whole.parameters[places[i]] = data.parameters[i];
    DeviceResult wanted = run_on_device(full, options, whole);
    // Gradients of biases lie at other addresses, by which cuBLAS may choose another order of additions.
    std::vector<float> gradient;
    for (const std::size_t place : places) gradient.push_back(wanted.gradient[place]);
    expect_near("the gradient", found.gradient, gradient);
    wanted.gradient = found.gradient;
    EXPECT_EQ(found, wanted) << cell;
  }
}

}  // namespace
}  // namespace ebb::test::device_sparse_test
