// SPDX-License-Identifier: Apache-2.0
// One recurrent layer: its weights at work. The time loop is the stack's; a layer does one time step
// forward, and goes back through the time steps of a tape.
//
// Fields of a state are [B,F,H]; spikes lie as SpikeFormat says. Memory is the caller's: scratch of
// forward_bytes() or reverse_bytes(), which the calls of one kind may use until the next kind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/cell/cell.h"
#include "ebb/cell/cell_table.h"
#include "ebb/cell/connection.h"
#include "ebb/cell/rows.h"
#include "ebb/cell/spike_format.h"
#include "ebb/core/bytes.h"
#include "ebb/core/workers.h"

namespace ebb {

// A part of a layer's parameters.
struct ParameterShape {
  std::string name;  // torch's, without the layer's number: "weight_ih"
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0, size = 0;  // in numbers
  double value = 0;                   // to begin with, for those of units
  bool learns = true;
};

// Where a layer is put.
struct LayerPlace {
  std::int64_t batch = 0;
  std::int64_t chunk = 0;       // the most time steps of a tape
  bool events = false;          // most of its inputs are 0
  bool input_spikes = false;    // and come as bits
  bool scaled = false;          // by another number than 1
  bool input_gradient = false;  // is wanted
};

// Gradients of a layer's outputs from above.
template <class Number>
class OutputGradients {
 public:
  OutputGradients() = default;
  OutputGradients(const OutputGradients&) = delete;
  OutputGradients& operator=(const OutputGradients&) = delete;
  virtual ~OutputGradients() = default;
  // [B,H] of time step i of the tape, until the next call; null: 0. Asked last first, once each.
  virtual const Number* at(std::int64_t i) = 0;
};

// The time steps of one tape, as a layer's reverse sees them.
template <class Number>
struct LayerTape {
  std::int64_t steps = 0, first = 0;  // time steps in it; the first of them
  const Number* before = nullptr;     // fields before the first
  std::span<const Number* const> after;
  Number* saved = nullptr;  // [steps,B,saved,H]; becomes the gradients of the sums
  std::span<const std::uint64_t* const> bits;  // [B,words] before each time step
  std::span<const Rows<Number>> inputs;
  OutputGradients<Number>* of_outputs = nullptr;
  Number* of_inputs = nullptr;  // [steps,B,I], written if input_gradient
};

template <class Number>
class Layer {
 public:
  // Throws Error(invalid_argument) for options that cannot be.
  Layer(const LayerOptions& options, const LayerPlace& place);

  const LayerOptions& options() const { return options_; }
  const CellShape& shape() const { return shape_; }
  const CellFacts& facts() const { return kCellFacts[cell_]; }
  const std::vector<ParameterShape>& parameters() const { return parameters_; }
  std::int64_t parameter_size() const { return parameter_size_; }
  const Pattern* input_pattern() const { return input_pattern_ ? &*input_pattern_ : nullptr; }
  const Pattern* recurrent_pattern() const {
    return recurrent_pattern_ ? &*recurrent_pattern_ : nullptr;
  }
  const SpikeFormat& spikes() const { return format_; }
  std::int64_t prepared_bytes() const;
  Bytes field_bytes() const;  // of all fields of a state
  Bytes spike_bytes() const;  // of its spikes
  Bytes saved_bytes() const;  // of one time step
  Bytes forward_bytes(int threads) const;
  Bytes reverse_bytes(int threads) const;

  // The parameters have changed.
  void prepare(Workers& workers, const Number* parameters);
  // Gradients begin at 0.
  void begin();

  // Before the first time step of a call: the spikes of the state.
  void start(Workers& workers, const Number* fields, const std::byte* spikes, std::byte* scratch);
  // One time step from `before` to `after`, which may not overlap. saved: null, or where to.
  void forward(Workers& workers, const Rows<Number>& input, const std::uint8_t* idle,
               const Number* before, Number* after, Number* saved);
  // What it gave: fields `after`, or the spikes as bits.
  Rows<Number> output(const Number* after) const;
  void keep_spikes(std::byte* to) const;
  // Spikes that were not heard in the last time step, since more units fired than may.
  std::int64_t dropped() const { return dropped_; }

  // Turns the gradients of the state after the tape into those before it, `adjoint` of the fields
  // and, for cells that spike, `of_spikes` [B,H], and adds to `gradient`, laid out as the
  // parameters. `lengths` [B] or null.
  void reverse(Workers& workers, const LayerTape<Number>& tape, const std::int64_t* lengths,
               Number* adjoint, Number* of_spikes, Number* gradient, std::byte* scratch);
  // After the last reverse.
  void finish(Workers& workers, Number* gradient);

 private:
  // What forward keeps from one time step to the next, and what it needs in one.
  struct ForwardScratch {
    std::uint8_t* spikes;       // [B,H]
    std::uint64_t* bits;        // [B,words], what is heard of them
    Events<Number> own, input;  // of the recurrent and the input products
    std::int32_t* dropped;      // [B]
    Number* sums;               // [threads with units,B,sums,48]
  };
  struct ReverseScratch {
    std::uint8_t* idle;     // [B]
    std::uint8_t* spikes;   // [B,H], before the time step
    std::uint8_t* listed;   // [B,H]
    std::uint8_t* support;  // [B,H]
    Lists wanted;           // units whose output's gradient is wanted
    Number* of_sums;        // [chunk,B,sums,H], where it does not lie in the tape
    std::byte* products;    // scratch of the connections
  };
  ForwardScratch forward_scratch(std::byte* scratch, int threads, Bytes* used) const;
  ReverseScratch reverse_scratch(std::byte* scratch, int threads, Bytes* used) const;
  std::string described() const { return "a layer of '" + options_.cell + "'"; }
  void check() const;
  void check_uses() const;
  void check_parameters() const;
  void choose_surrogate();
  void add_parameters();
  void add_parameter(std::string_view name, std::vector<std::int64_t> shape);
  // The numbers that each unit has.
  std::span<const UnitNumber> units() const {
    return std::span(facts().units).first(static_cast<std::size_t>(shape_.parameters));
  }
  ConnectionShape connection(bool recurrent) const;
  // Numbers from sample to sample in the gradients of the outputs.
  std::int64_t output_row() const { return (shape_.spikes ? 1 : shape_.fields) * options_.hidden; }
  // The sums' gradients take the place of what is saved.
  bool in_place() const { return shape_.saved == shape_.sums; }
  bool has_recurrent() const { return connections_.size() > 1; }
  std::int64_t grain() const;  // units at which threads divide the work
  const ParameterShape* find(const std::string& parameter) const;
  void drop(std::int64_t from, std::int64_t to);
  void hear(std::int64_t from, std::int64_t to, const Number* after);
  void mark(std::int64_t from, std::int64_t to, const LayerTape<Number>& tape, std::int64_t t,
            const ReverseScratch& s) const;
  void pointwise(std::int64_t from, std::int64_t to, const LayerTape<Number>& tape, std::int64_t t,
                 const ReverseScratch& s, const Number* given, Number* adjoint, Number* output);
  void add_gradients(Workers& workers, const LayerTape<Number>& tape, const ReverseScratch& s,
                     Number* gradient);
  void add_bias_gradients(Workers& workers, std::int64_t rows, const Number* d,
                          Number* gradient) const;

  LayerOptions options_;
  LayerPlace place_;
  std::size_t cell_;  // a row of kCells
  CellShape shape_;
  CellLoops<Number> loops_;
  Surrogate surrogate_ = Surrogate::fast_sigmoid;
  bool is_masked_ = false;  // backward skips units without a gradient
  std::int64_t most_ = 0;   // units that may be heard at once
  Constants<Number> constants_;
  SpikeFormat format_;
  std::optional<Pattern> input_pattern_, recurrent_pattern_;
  std::vector<Connection<Number>> connections_;  // input and, if there is one, recurrent
  std::vector<ParameterShape> parameters_;
  std::int64_t parameter_size_ = 0;
  // Prepared from the parameters.
  std::vector<Number> biases_;           // [sums,H]
  std::vector<Number> unit_parameters_;  // [P,H]
  std::vector<Number> of_units_;         // their gradient
  std::vector<Rows<Number>> own_rows_;   // [chunk], for reverse

  ForwardScratch forward_ = {};  // since start
  std::int64_t dropped_ = 0;
};

}  // namespace ebb
