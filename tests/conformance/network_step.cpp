// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <string_view>

#include "ebb/run/network.h"
#include "tests/conformance/steps.h"

namespace ebb::test {
namespace {

constexpr std::int64_t kBatch = 2, kInputs = 3, kOutputs = 2, kChunk = 2;

class NetworkStep : public TestStep {
 public:
  NetworkStep(std::string name, std::int64_t steps, std::vector<LayerOptions> layers)
      : name_(std::move(name)), net_(options(steps, std::move(layers))), row_(kBatch * kInputs) {
    net_.set_loss(&loss_);
    net_.set_input({row_.size(), [this](std::int64_t t) {
                      for (std::size_t i = 0; i < row_.size(); ++i) {
                        row_[i] = static_cast<float>(
                            std::sin(0.9 * static_cast<double>(t) + static_cast<double>(i)));
                      }
                      return std::span<const float>(row_);
                    }});
  }
  std::string name() const override { return name_; }
  std::vector<std::byte> initial() const override {
    return std::vector<std::byte>(static_cast<std::size_t>(net_.bytes(0).state));
  }
  std::int64_t steps() const override { return net_.steps(); }
  StepBytes bytes(std::int64_t step) const override { return net_.bytes(step); }
  void begin() override {
    forget();
    net_.begin();
  }
  std::int64_t advance(const StepSpan& span, std::byte* state, std::byte* scratch) override {
    forwards_ += span.to - span.from;
    return net_.advance(span, state, scratch);
  }
  void record(const StepSpan& span, std::byte* state, const Tapes& tapes,
              std::byte* scratch) override {
    forwards_ += span.to - span.from;
    net_.record(span, state, tapes, scratch);
  }
  void reverse(std::int64_t from, std::int64_t to, const Tapes& tapes, std::byte* adjoint,
               std::byte* scratch) override {
    net_.reverse(from, to, tapes, adjoint, scratch);
  }
  std::vector<FieldShape> state_fields() const override { return net_.state_fields(); }
  std::vector<Field> parameters() override { return net_.parameters(); }
  std::vector<Field> gradients() override { return net_.gradients(); }
  double loss() const override { return net_.loss(); }

 private:
  static NetworkOptions options(std::int64_t steps, std::vector<LayerOptions> layers) {
    NetworkOptions options;
    options.time_steps = steps * kChunk;
    options.batch = kBatch;
    options.chunk = kChunk;
    options.dropout = 0.2;
    options.threads = 2;
    options.layers = std::move(layers);
    options.layers[0].input = kInputs;
    return options;
  }
  struct OwnLoss : Loss<float> {
    explicit OwnLoss(NetworkStep& owner) : step(owner) {}
    void begin() override {}
    void output(std::int64_t t, std::span<const float> output) override {
      if (t % kChunk == kChunk - 1) step.output(t / kChunk, static_cast<double>(output[0]));
    }
    bool gradient(std::int64_t, std::span<const float> output, std::span<float> gradient) override {
      for (std::size_t i = 0; i < output.size(); ++i) gradient[i] = output[i] - 0.3F;
      return true;
    }
    double value() const override { return 0; }
    NetworkStep& step;
  };

  std::string name_;
  Network<float> net_;
  std::vector<float> row_;
  OwnLoss loss_{*this};
};

}  // namespace

std::unique_ptr<TestStep> network_step(std::int64_t steps) {
  return std::make_unique<NetworkStep>(
      "network", steps,
      std::vector<LayerOptions>{{.cell = "lif", .hidden = 5, .weight_scale = 4, .train_tau = true},
                                {.cell = "lstm", .hidden = 4},
                                {.cell = "linear", .hidden = kOutputs}});
}

std::unique_ptr<TestStep> cell_step(const CellFacts& cell, std::int64_t steps) {
  // A membrane takes in a twentieth of its input in a time step, and must fire all the same.
  const bool integrates = std::ranges::count(cell.units, "tau_mem", &UnitNumber::name) > 0;
  const LayerOptions own{.cell = std::string(cell.name),
                         .hidden = 5,
                         .weight_scale = integrates && !cell.is_readout ? 40.0 : 4.0,
                         .synaptic = cell.synaptic,
                         .normalised = false,  // or hardly a unit would spike
                         .train_tau = true,
                         .train_threshold = true};
  std::vector<LayerOptions> layers{own, own, {.cell = "linear", .hidden = kOutputs}};
  if (cell.is_readout) layers = {{.cell = "rnn", .hidden = 5}, own};
  return std::make_unique<NetworkStep>(own.cell, steps, layers);
}

}  // namespace ebb::test
