// SPDX-License-Identifier: Apache-2.0
// Networks of every smooth cell against finite differences in double precision: parameters, initial
// states and inputs, with everything that can be put between layers.
#include <gtest/gtest.h>

#include <cmath>

#include "ebb/core/random.h"
#include "ebb/run/network.h"
#include "ebb/run/run.h"
#include "ebb/run/verify.h"
#include "tests/thorough.h"

namespace ebb::test::gradient_test {
namespace {

constexpr std::int64_t kSteps = 13, kBatch = 3, kInputs = 5, kOutputs = 4;

struct Variant {
  std::string name;
  NetworkOptions options;
  double density = 1;
  bool lengths = false;
  std::string readout = "linear";
};

std::vector<Variant> variants() {
  return {{"plain", {.chunk = 4}, 1, false, "linear"},
          {"lengths", {.chunk = 3}, 1, true, "leaky"},
          {"pipelined_sparse", {.chunk = 4, .pipelined = true}, 0.4, false, "linear"},
          {"dropout", {.chunk = 5, .dropout = 0.3}, 1, true, "leaky"},
          {"all", {.chunk = 1, .pipelined = true, .dropout = 0.2}, 0.5, true, "leaky"}};
}

// Those without a spike, which has no derivative.
std::vector<std::string> smooth_cells() {
  std::vector<std::string> names;
  for (const CellRow& row : cells()) {
    if (!row.spikes && !row.is_readout) names.push_back(row.name);
  }
  return names;
}

// Half the squares of the outputs, and the outputs times fixed numbers.
class TestLoss : public Loss<double> {
 public:
  void begin() override { sum_ = 0; }
  void output(std::int64_t t, std::span<const double> output) override {
    for (std::size_t i = 0; i < output.size(); ++i) {
      sum_ += output[i] * (weight(t, i) + 0.5 * output[i]);
    }
  }
  bool gradient(std::int64_t t, std::span<const double> output,
                std::span<double> gradient) override {
    for (std::size_t i = 0; i < output.size(); ++i) gradient[i] = weight(t, i) + output[i];
    return true;
  }
  double value() const override { return sum_; }

 private:
  static double weight(std::int64_t t, std::size_t i) {
    return Random(9, static_cast<std::uint64_t>(t)).normal(i);
  }
  double sum_ = 0;
};

using Parameter = std::tuple<std::string, Variant>;
class Gradient : public testing::TestWithParam<Parameter> {};

NetworkOptions network_of(const std::string& cell, const Variant& variant) {
  NetworkOptions options = variant.options;
  options.time_steps = kSteps;
  options.batch = kBatch;
  options.threads = quick() ? 1 : 2;  // two wait for each other where several tests run
  options.input_gradient = true;
  LayerOptions layer{.cell = cell,
                     .hidden = 53,
                     .input_density = variant.density,
                     .recurrent_density = variant.density,
                     .seed = 3};
  if (cell == "egru") {  // where every unit is heard it has a derivative
    layer.threshold = -100;
    layer.train_threshold = true;
  }
  options.layers = {layer, layer, {.cell = variant.readout, .hidden = kOutputs, .train_tau = true}};
  options.layers[0].input = kInputs;
  options.layers[1].hidden = 6;
  return options;
}

TEST_P(Gradient, IsThatOfFiniteDifferences) {
  const auto& [cell, variant] = GetParam();
  Network<double> net(network_of(cell, variant));
  std::vector<double> x(kSteps * kBatch * kInputs), dx(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = Random(2).normal(i);
  TestLoss loss;
  net.set_input({std::span<const double>(x), kBatch * kInputs});
  net.set_input_gradient({std::span(dx), kBatch * kInputs});
  net.set_loss(&loss);
  const std::vector<std::int64_t> lengths{kSteps, 7, 10};
  if (variant.lengths) net.set_lengths(lengths);
  std::vector<double> initial(static_cast<std::size_t>(net.bytes(0).state) / sizeof(double));
  for (std::size_t i = 0; i < initial.size(); ++i) initial[i] = 0.3 * Random(3).normal(i);

  const RunOptions options{
      .strategy = "store_all", .chain = Chain::uniform(net.steps(), {}), .platform = Platform{}};
  // A kink of max(x, 0) within the difference would show: it is seldom in a narrow one.
  const double width = cell == "rnn_relu" ? 1e-7 : 1e-5;
  const GradientCheck check = gradient_check(
      net, options, initial, GradientCheckOptions{.elements = quick() ? 4 : 20, .width = width});
  EXPECT_LT(check.largest_error(), cell == "rnn_relu" ? 1e-4 : 1e-6) << check.text();

  ebb::Run run(net, options);
  std::vector<double> end(initial.size()), of_initial(initial.size());
  run.forward(initial, end);
  run.backward(std::vector<double>(end.size()), of_initial);
  const std::vector<double> found = dx;
  for (std::size_t i = 0; i < x.size(); i += quick() ? 29 : 7) {
    const double kept = x[i];
    const auto at = [&](double value) {
      x[i] = value;
      run.forward(initial, end);
      return loss.value();
    };
    const double right = (at(kept + width) - at(kept - width)) / (2 * width);
    x[i] = kept;
    EXPECT_NEAR(found[i], right, cell == "rnn_relu" ? 1e-5 : 1e-7) << "input " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, Gradient,
                         testing::Combine(testing::ValuesIn(smooth_cells()),
                                          testing::ValuesIn(variants())),
                         [](const auto& its) {
                           return std::get<0>(its.param) + "_" + std::get<1>(its.param).name;
                         });

}  // namespace
}  // namespace ebb::test::gradient_test
