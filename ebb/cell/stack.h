// SPDX-License-Identifier: Apache-2.0
// Layers on top of each other over time: the time loop, written once for all cells, and where things
// lie in a state, a tape and scratch memory. A step is `chunk` time steps, the last may be shorter.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ebb/cell/layer.h"
#include "ebb/core/bytes.h"
#include "ebb/core/carver.h"
#include "ebb/core/workers.h"

namespace ebb {

struct StackOptions {
  std::int64_t time_steps = 0;
  std::int64_t batch = 0;
  std::vector<LayerOptions> layers = {};  // lowest first
  // Time steps of a step; 0: chosen from the sizes and whether units spike. Gradients of
  // different chunks differ in the last bits.
  std::int64_t chunk = 0;
  bool pipelined = false;  // a layer reads what the one below it gave a time step before
  double dropout = 0;      // probability with which an output is not heard by the layer above
  std::uint64_t seed = 1;  // of dropout
  std::int64_t first_sample = 0;  // number of the batch's first sample, for dropout
  bool input_spikes = false;      // inputs are bits
  bool input_gradient = false;    // is wanted
};

// A named part of all parameters: "weight_hh_l0", "threshold_l1".
struct NamedParameter {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0, size = 0;  // in numbers
  double value = 0;                   // to begin with, for those of units
  bool learns = true;
  std::int64_t layer = 0;
  std::int64_t inputs = 0;  // of the layer's product that it belongs to; 0: of units
};

// What a stack reads and gives, a time step at a time.
template <class Number>
class Outside {
 public:
  Outside() = default;
  Outside(const Outside&) = delete;
  Outside& operator=(const Outside&) = delete;
  virtual ~Outside() = default;
  // [B,I]; the same each time it is asked, valid until the stack's call returns.
  virtual Rows<Number> input(std::int64_t t) = 0;
  // What the last layer gave.
  virtual void output(std::int64_t t, const Rows<Number>& output) = 0;
  // Its gradient, into `gradient` [B,O]; false: it is 0.
  virtual bool output_gradient(std::int64_t t, const Rows<Number>& output, Number* gradient) = 0;
  virtual void input_gradient(std::int64_t t, std::span<const Number> gradient) = 0;
};

template <class Number>
class Stack {
 public:
  // Throws Error(invalid_argument) for options that cannot be.
  Stack(const StackOptions& options, int threads);

  std::int64_t time_steps() const { return options_.time_steps; }
  std::int64_t batch() const { return options_.batch; }
  std::int64_t chunk() const { return chunk_; }
  std::int64_t steps() const { return (options_.time_steps + chunk_ - 1) / chunk_; }
  std::int64_t inputs() const { return layers_.front().options().input; }
  std::int64_t outputs() const { return layers_.back().options().hidden; }
  const std::vector<Layer<Number>>& layers() const { return layers_; }
  const std::vector<NamedParameter>& parameters() const { return parameters_; }
  std::int64_t parameter_size() const { return parameter_size_; }

  Bytes state_bytes() const { return state_bytes_; }
  Bytes tape_bytes() const { return tape_bytes_; }
  Bytes adjoint_bytes() const { return adjoint_bytes_; }
  Bytes scratch_bytes() const { return scratch_bytes_; }
  Bytes prepared_bytes() const;
  // What a time step adds to the leanest way to keep everything: its tape, each state counted once.
  Bytes lean_bytes() const;
  // Fields of a layer in a state, in bytes from its start.
  Bytes fields_at(std::int64_t layer) const {
    return places_[static_cast<std::size_t>(layer)].fields;
  }
  // Its spikes in a state, and their gradients in an adjoint; of layers that spike.
  Bytes spikes_at(std::int64_t layer) const {
    return places_[static_cast<std::size_t>(layer)].spikes;
  }
  Bytes of_spikes_at(std::int64_t layer) const {
    return places_[static_cast<std::size_t>(layer)].of_spikes;
  }

  // Parameters to begin with, drawn by `seed`: as torch.nn draws those of smooth cells and linear
  // layers; weights into cells that spike have mean 0 and the variance 1 / inputs.
  void initialise(std::uint64_t seed, Number* parameters) const;
  // The parameters have changed; `iteration` tells the masks of dropout apart.
  void prepare(const Number* parameters, std::uint64_t iteration);
  // Whether dropout is at work; it is to begin with.
  void set_dropout(bool on) { drops_ = on; }
  // [B], each 0 to time_steps; empty: all last to the end. A sample's state stays as it is after its
  // own last time step. Kept until set again.
  void set_lengths(std::span<const std::int64_t> lengths);
  // Gradients and counts begin at 0.
  void begin();

  // One step from `state`, which becomes the state after it. tape: null, or where to. `first`: hand
  // out the outputs and count.
  void forward(std::int64_t step, bool first, std::byte* state, std::byte* tape, std::byte* scratch,
               Outside<Number>& outside);
  // Turns the adjoint of the state after the step into that before it and adds to `gradient`. The
  // tape is used up. An adjoint is laid out like a state, with the gradients of spikes behind it.
  void reverse(std::int64_t step, std::byte* tape, std::byte* adjoint, std::byte* scratch,
               Number* gradient, Outside<Number>& outside);
  // After the last of them.
  void finish(Number* gradient);

  // Since begin, over all units, samples and time steps: spikes that max_activity kept from being
  // heard.
  std::int64_t dropped() const { return dropped_; }
  double activity() const;  // share of spiking units' time steps that were spikes

 private:
  // Where a layer's parts lie.
  struct LayerOffsets {
    Bytes fields = 0, spikes = 0;  // in a state
    Bytes of_spikes = 0;           // in an adjoint
    Bytes saved = 0, after = 0;    // in a tape; `after`: its states but the first and the last
    Bytes after_stride = 0, spikes_after = 0;
    Bytes forward = 0, next = 0;  // in scratch: the layer's own, the fields' other place
    Bytes bits = 0;               // in scratch of reverse: the spikes of a tape, where listed
    std::int64_t parameters = 0;
  };

  void check() const;
  void add_layers();
  void lay_out();
  void lay_out_state(Carver& state);
  std::int64_t times_of(std::int64_t step) const;
  Rows<Number> heard(const Rows<Number>& rows, std::int64_t layer, std::int64_t t, std::byte* to);
  void unheard(std::int64_t layer, std::int64_t step, std::int64_t times, Number* gradients,
               std::byte* scratch);
  void count(std::int64_t layer);
  Bytes masked_bytes(std::int64_t layer) const;
  // Fields and spikes after time step i of a tape; spikes of i = -1 are those before it.
  std::byte* after_at(std::int64_t layer, std::int64_t i, std::int64_t times,
                      std::byte* tape) const;
  std::byte* spikes_at(std::int64_t layer, std::int64_t i, std::int64_t times,
                       std::byte* tape) const;
  const std::uint64_t* bits_before(std::int64_t layer, std::int64_t i, std::int64_t times,
                                   std::byte* tape, std::byte* scratch) const;
  void read_bits(std::int64_t times, std::byte* tape, std::byte* scratch) const;
  Rows<Number> given_before(std::int64_t layer, std::int64_t i, std::int64_t times, std::byte* tape,
                            std::byte* scratch) const;
  class FromAbove;  // the gradients of a layer's outputs
  void reverse_layer(std::int64_t l, std::int64_t step, std::byte* tape, std::byte* adjoint,
                     std::byte* scratch, Number* gradient, Outside<Number>& outside);

  StackOptions options_;
  std::int64_t chunk_ = 1;
  std::unique_ptr<Workers> workers_;
  std::vector<Layer<Number>> layers_;
  std::vector<LayerOffsets> places_;
  std::vector<NamedParameter> parameters_;
  std::int64_t parameter_size_ = 0;
  Bytes state_bytes_ = 0, tape_bytes_ = 0, adjoint_bytes_ = 0, scratch_bytes_ = 0;
  Bytes last_state_ = 0;                                           // in a tape
  Bytes forward_mask_ = 0, reverse_mask_ = 0, reverse_layer_ = 0;  // in scratch
  Bytes top_gradient_ = 0;
  std::array<Bytes, 2> of_outputs_at_ = {};
  std::vector<std::int64_t> lengths_;
  std::vector<std::uint8_t> idle_;
  std::uint64_t iteration_ = 0;
  bool drops_ = true;
  std::int64_t dropped_ = 0, spikes_ = 0, spike_places_ = 0;

  // [chunk] or [layers], so that running allocates nothing.
  std::vector<Number*> now_, next_;
  std::vector<Rows<Number>> inputs_;
  std::vector<const Number*> after_;
  std::vector<const std::uint64_t*> bits_;
};

}  // namespace ebb
