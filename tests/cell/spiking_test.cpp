// SPDX-License-Identifier: Apache-2.0
// Cells that spike against plain loops over full matrices: spikes, outputs and every gradient.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "ebb/core/bits.h"
#include "ebb/core/random.h"
#include "ebb/run/network.h"
#include "ebb/run/run.h"
#include "tests/cell/plain_spiking.h"

namespace ebb::test::spiking_test {
namespace {

struct Case {
  std::string name;
  LayerOptions layer;
  bool bits = false;  // the inputs are spikes
  std::int64_t chunk = 4;
};

double psi(const std::string& name, double x) {
  const double away = std::abs(x), pi = std::numbers::pi;
  if (name == "superspike") return 1 / std::pow(1 + away, 2);
  if (name == "arctan") return 1 / (1 + std::pow(pi * x, 2));
  if (name == "triangular") return std::max(0.0, 0.3 * (1 - away));
  if (name == "boxcar") return away <= 0.5 ? 1 : 0;
  if (name == "multi_gaussian") {
    const auto normal = [pi](double y, double mean, double sigma) {
      return std::exp(-std::pow((y - mean) / sigma, 2) / 2) / (sigma * std::sqrt(2 * pi));
    };
    return 0.5 * (1.15 * normal(x, 0, 0.5) - 0.15 * normal(x, 0.5, 3) - 0.15 * normal(x, -0.5, 3));
  }
  return 1 / std::pow(1 + 25 * away, 2);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add = [&all](std::string name, LayerOptions layer, bool bits = false,
                          std::int64_t chunk = 4) {
    layer.input = 7;
    layer.hidden = 70;  // more than one block, and no whole number of them
    layer.train_tau = layer.train_threshold = true;
    layer.weight_scale = 3;
    layer.threshold = 0.5;
    all.push_back({std::move(name), layer, bits, chunk});
  };
  for (const CellRow& row : cells()) {
    if (!row.spikes) continue;
    const std::string& cell = row.name;
    for (const bool hard : {false, true}) {
      for (const bool attached : {false, true}) {
        LayerOptions layer{.cell = cell, .hard_reset = hard, .attached_reset = attached};
        add(cell + (hard ? "_hard" : "_soft") + (attached ? "_attached" : "_detached"), layer,
            attached);
      }
    }
    for (const SurrogateRow& own : surrogates()) {
      add(cell + "_" + own.name, {.cell = cell, .attached_reset = true, .surrogate = own.name},
          false, 3);
    }
    add(cell + "_as_it_is", {.cell = cell, .weight_scale = 1, .normalised = false});
    add(cell + "_sparse",
        {.cell = cell, .input_density = 0.6, .recurrent_density = 0.3, .surrogate = "boxcar"},
        true);
    add(cell + "_two_thresholds",
        {.cell = cell, .surrogate = "arctan", .gradient_threshold = 0.3, .max_activity = 0.05},
        true);
  }
  add("lif_synaptic", {.cell = "lif", .synaptic = true, .attached_reset = true});
  add("lif_synaptic_rest", {.cell = "lif",
                            .synaptic = true,
                            .hard_reset = true,
                            .attached_reset = true,
                            .normalised = false,
                            .rest = -0.2});
  return all;
}

class Spiking : public testing::TestWithParam<Case> {};

constexpr std::int64_t kSteps = 11, kBatch = 3, kOutputs = 2;

Numbers drawn(std::size_t count, std::uint64_t stream, double scale) {
  const Random random(7, stream);
  Numbers numbers(count);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = scale * random.normal(i);
  return numbers;
}

// Weights as a full matrix; where they are sparse, zeros elsewhere. `put`: the other way.
void each_weight(const Pattern* pattern, std::int64_t rows, std::int64_t columns,
                 const std::function<void(std::size_t, std::size_t)>& each) {
  if (pattern == nullptr) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(rows * columns); ++i) each(i, i);
    return;
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    for (auto e = pattern->starts[static_cast<std::size_t>(r)];
         e < pattern->starts[static_cast<std::size_t>(r) + 1]; ++e) {
      each(static_cast<std::size_t>(e),
           static_cast<std::size_t>(r * columns + pattern->columns[static_cast<std::size_t>(e)]));
    }
  }
}

const std::map<std::string, std::string>& names() {
  static const std::map<std::string, std::string> table = {{"weight_ih_l0", "w_in"},
                                                           {"weight_hh_l0", "w_rec"},
                                                           {"bias_ih_l0", "bias"},
                                                           {"weight_ih_l1", "w_out"},
                                                           {"bias_ih_l1", "b_out"},
                                                           {"threshold_l0", "threshold"},
                                                           {"tau_mem_l0", "tau_mem"},
                                                           {"tau_syn_l0", "tau_syn"},
                                                           {"tau_adp_l0", "tau_adp"},
                                                           {"beta_l0", "beta"},
                                                           {"a_l0", "a"},
                                                           {"b_l0", "b"}};
  return table;
}

void expect_near(const Numbers& found, const Numbers& right, const std::string& what) {
  ASSERT_EQ(found.size(), right.size()) << what;
  double largest = 0;
  for (const double number : right) largest = std::max(largest, std::abs(number));
  for (std::size_t i = 0; i < right.size(); ++i) {
    ASSERT_NEAR(found[i], right[i], 1e-10 * std::max(1.0, largest)) << what << "[" << i << "]";
  }
}

// A network with that layer, and the same as plain loops.
class Pair {
 public:
  explicit Pair(const Case& c) : case_(c), net_(options(c)) {
    spread_unit_parameters();
    for (const NetworkParameter& own : net_.layout())
      full(own, net_.values(), parameters_[names().at(own.name)]);
    inputs_.resize(static_cast<std::size_t>(kSteps * kBatch * net_.inputs()));
    const Random random(3);
    bits_.resize(static_cast<std::size_t>(kSteps * kBatch));
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const bool on = random.uniform(i) < 0.4;
      inputs_[i] = c.bits ? (on ? 1 : 0) : random.normal(i);
      if (c.bits && on) bits_[i / 7] |= std::uint64_t{1} << (i % 7);
    }
    weights_ = drawn(static_cast<std::size_t>(kSteps * kBatch * kOutputs), 5, 1);
    const FieldShape fields = net_.state_fields()[0];
    initial_ = drawn(static_cast<std::size_t>(fields.bytes) / sizeof(double), 6, 0.2);
  }

  static NetworkOptions options(const Case& c) {
    NetworkOptions options;
    options.time_steps = kSteps;
    options.batch = kBatch;
    options.chunk = c.chunk;
    options.layers = {c.layer, {.cell = "linear", .hidden = kOutputs}};
    options.input_spikes = c.bits;
    options.input_gradient = true;
    options.threads = 2;
    return options;
  }

  void compare() {
    const PlainResult right = plain().run(inputs_, initial_, weights_);
    ASSERT_GT(right.spikes, 50);
    const std::size_t row = static_cast<std::size_t>(kBatch * kOutputs);
    Numbers outputs(weights_.size()), of_inputs(inputs_.size());
    if (case_.bits) {
      net_.set_spikes({std::span<const std::uint64_t>(bits_), static_cast<std::size_t>(kBatch)});
    } else {
      net_.set_input({std::span<const double>(inputs_), inputs_.size() / kSteps});
    }
    net_.set_output({std::span(outputs), row});
    net_.set_output_gradient({std::span<const double>(weights_), row});
    net_.set_input_gradient({std::span(of_inputs), inputs_.size() / kSteps});
    std::vector<std::byte> state(static_cast<std::size_t>(net_.bytes(0).state)), end(state.size()),
        adjoint(state.size()), of_state(state.size());
    std::ranges::copy(std::as_bytes(std::span(initial_)), state.begin());
    ebb::Run run(
        net_,
        {.strategy = "revolve", .chain = Chain::uniform(net_.steps(), {}), .platform = Platform{}});
    run.forward(state, end);
    run.backward(adjoint, of_state);

    expect_near(outputs, right.outputs, "outputs");
    expect_near(of_inputs, right.of_inputs, "inputs");
    Numbers of_initial(initial_.size());
    std::ranges::copy(std::span(of_state).first(initial_.size() * sizeof(double)),
                      std::as_writable_bytes(std::span(of_initial)).begin());
    expect_near(of_initial, right.of_initial, "initial state");
    EXPECT_EQ(net_.dropped_spikes(), right.dropped);
    EXPECT_EQ(net_.dropped_spikes() > 0, case_.layer.max_activity < 1);
    for (const NetworkParameter& own : net_.layout()) {
      const std::string& name = names().at(own.name);
      Numbers found, wanted = right.gradients.at(name);
      full(own, net_.gradient(), found);
      if (const Pattern* pattern = pattern_of(own)) zero_elsewhere(*pattern, own, wanted);
      expect_near(found, wanted, own.name);
    }
  }

 private:
  const Pattern* pattern_of(const NetworkParameter& own) const {
    if (own.name == "weight_ih_l0") return net_.input_pattern(0);
    return own.name == "weight_hh_l0" ? net_.recurrent_pattern(0) : nullptr;
  }
  std::pair<std::int64_t, std::int64_t> shape_of(const NetworkParameter& own) const {
    if (own.name == "weight_ih_l0") return {70, 7};
    if (own.name == "weight_hh_l0") return {70, 70};
    return {own.size, 1};
  }
  template <class Values>
  void full(const NetworkParameter& own, const Values& values, Numbers& to) const {
    const auto [rows, columns] = shape_of(own);
    to.assign(static_cast<std::size_t>(rows * columns), 0.0);
    each_weight(pattern_of(own), rows, columns, [&](std::size_t from, std::size_t place) {
      to[place] = values[static_cast<std::size_t>(own.offset) + from];
    });
  }
  void zero_elsewhere(const Pattern& pattern, const NetworkParameter& own, Numbers& values) const {
    Numbers kept(values.size());
    const auto [rows, columns] = shape_of(own);
    each_weight(&pattern, rows, columns,
                [&](std::size_t, std::size_t place) { kept[place] = values[place]; });
    values = kept;
  }
  // So that a parameter of one unit is not taken for another's.
  void spread_unit_parameters() {
    const Random random(11);
    for (const NetworkParameter& own : net_.layout()) {
      if (own.name.starts_with("weight") || own.name.starts_with("bias")) continue;
      for (std::int64_t i = 0; i < own.size; ++i) {
        net_.values()[static_cast<std::size_t>(own.offset + i)] *=
            0.3 + random.uniform(static_cast<std::uint64_t>(own.offset + i));
      }
    }
  }
  PlainSpiking plain() const {
    PlainOptions options;
    const LayerOptions& layer = case_.layer;
    options.cell = layer.cell;
    options.synaptic = layer.synaptic;
    options.hard = layer.hard_reset;
    options.attached = layer.attached_reset;
    options.normalised = layer.normalised;
    options.rest = layer.rest;
    options.least = layer.gradient_threshold.value_or(-1e30);
    if (layer.max_activity < 1) options.most = 2;  // the even number up to 5 % of 70
    options.psi = [name = layer.surrogate](double x) { return psi(name, x); };
    return PlainSpiking(options, {kSteps, kBatch, 7, 70, kOutputs}, parameters_);
  }

  Case case_;
  Network<double> net_;
  Named parameters_;
  Numbers inputs_, weights_, initial_;
  std::vector<std::uint64_t> bits_;
};

TEST_P(Spiking, IsWhatPlainLoopsGive) { Pair(GetParam()).compare(); }

INSTANTIATE_TEST_SUITE_P(Cells, Spiking, testing::ValuesIn(cases()),
                         [](const auto& its) { return its.param.name; });

}  // namespace
}  // namespace ebb::test::spiking_test
