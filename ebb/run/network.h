// SPDX-License-Identifier: Apache-2.0
// A net of recurrent layers as a Step: give it sequences in and what becomes of the outputs, and run
// it in any budget.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ebb/cell/cell.h"
#include "ebb/run/sequence.h"
#include "ebb/run/step.h"

namespace ebb {

// Its own constructors set the deprecated member too; who names it is still told.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
// What a Network is: its layers, its sizes, and how its time steps are cut into the steps of a plan.
struct NetworkOptions {
  std::int64_t time_steps = 0;  // T
  std::int64_t batch = 0;       // B
  std::vector<LayerOptions> layers =
      {};  // lowest first; the last may be a readout, linear or leaky
  // Time steps that a plan counts as one step; 0: chosen from the sizes and whether units
  // spike. Gradients are the same bits for every plan, but not for every chunk.
  std::int64_t chunk = 0;
  [[deprecated("it is called chunk")]] std::int64_t grain = 0;
  bool pipelined = false;         // a layer reads what the one below gave a time step before
  double dropout = 0;             // probability that an output is not heard by the layer above
  bool input_spikes = false;      // inputs are bits, see set_spikes
  bool input_gradient = false;    // is wanted, see set_input_gradient
  int threads = 0;                // 0: one for each processor
  std::uint64_t seed = 1;         // of initial parameters and dropout
  std::int64_t first_sample = 0;  // number of the batch's first sample among all, for dropout
};
#pragma GCC diagnostic pop

// A loss, made of the outputs [B,O] of each time step as they are computed.
template <class Number>
class Loss {
 public:
  Loss() = default;
  Loss(const Loss&) = delete;
  Loss& operator=(const Loss&) = delete;
  virtual ~Loss() = default;
  // A run begins.
  virtual void begin() = 0;
  virtual void output(std::int64_t t, std::span<const Number> output) = 0;
  // The gradient of the loss with respect to that output; false: it is 0 and nothing is written.
  virtual bool gradient(std::int64_t t, std::span<const Number> output,
                        std::span<Number> gradient) = 0;
  virtual double value() const = 0;
};

// A part of the parameters.
struct NetworkParameter {
  std::string name;  // torch's: "weight_ih_l0"
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0, size = 0;  // in numbers
  bool learns = true;
};

// Number is float or double. States, initial and final, are bytes: the fields of each layer [B,F,H]
// (lstm: h, c; others: their membranes and what else they remember), and spikes, which a state of
// zeros does not have.
template <class Number>
class Network : public Step {
 public:
  // Parameters are initialised. Throws Error(invalid_argument) for options that cannot be.
  explicit Network(const NetworkOptions& options);
  ~Network() override;

  std::int64_t time_steps() const;
  std::int64_t batch() const;
  std::int64_t inputs() const;
  std::int64_t outputs() const;
  std::int64_t chunk() const;
  [[deprecated("it is called chunk")]] std::int64_t grain() const { return chunk(); }

  // Rows of B * I numbers, or of B * words_of(I) words of bits, one row for each time step.
  void set_input(Sequence<const Number> input);
  void set_spikes(Sequence<const std::uint64_t> spikes);
  // [B], each 0 to T; empty: all last to the end. After its end a sample's state stays as it is.
  void set_lengths(std::span<const std::int64_t> lengths);
  // What becomes of the outputs: a loss, or rows of B * O numbers that are written in forward and
  // whose gradient is read in backward. Without any of them outputs are lost and have no gradient.
  void set_loss(Loss<Number>* loss);
  void set_output(Sequence<Number> output);
  void set_output_gradient(Sequence<const Number> gradient);
  // Rows of B * I numbers, written in backward.
  void set_input_gradient(Sequence<Number> gradient);
  // Whether dropout is at work; it is to begin with.
  void set_dropout(bool on);
  // Tells the masks of dropout of one iteration apart from those of others.
  void set_iteration(std::uint64_t iteration);

  const std::vector<NetworkParameter>& layout() const;
  std::span<Number> values();
  std::span<const Number> gradient() const;
  std::span<Number> gradient();
  // Of a layer whose weights are sparse: which there are; nullptr otherwise.
  const Pattern* input_pattern(std::int64_t layer) const;
  const Pattern* recurrent_pattern(std::int64_t layer) const;

  // The spikes of a layer in a state, as bits: [B,words_of(H)]. Throws Error(invalid_argument) for a
  // layer that does not spike or keeps its spikes as lists (max_activity).
  std::span<std::uint64_t> spikes(std::int64_t layer, std::span<std::byte> state) const;
  // After backward: the gradient with respect to the spikes of a layer in the initial state, [B,H],
  // which the adjoint of that state has no room for. Empty for a layer that does not spike.
  std::span<const Number> spike_gradient(std::int64_t layer) const;

  // In the last forward: share of spiking units' time steps that were spikes, and spikes that
  // max_activity kept from being heard.
  double activity() const;
  std::int64_t dropped_spikes() const;
  // Bytes that keeping everything needs at least, each state counted once: what percentages of plain
  // memory refer to.
  Bytes plain_bytes() const;
  // Weights laid out for products, beside parameters and gradient.
  Bytes prepared_bytes() const;

  std::int64_t steps() const override;
  StepBytes bytes(std::int64_t step) const override;
  void begin() override;
  std::int64_t advance(const StepSpan& span, std::byte* state, std::byte* scratch) override;
  void record(const StepSpan& span, std::byte* state, const Tapes& tapes,
              std::byte* scratch) override;
  void reverse(std::int64_t from, std::int64_t to, const Tapes& tapes, std::byte* adjoint,
               std::byte* scratch) override;
  std::vector<FieldShape> state_fields() const override;
  std::vector<Field> parameters() override;
  std::vector<Field> gradients() override;
  double loss() const override;
  Bytes callers_bytes() const override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ebb
