// SPDX-License-Identifier: Apache-2.0
// Weights from some inputs to the units of a layer, gate by gate: products forward and back and the
// gradient, for full and sparse weights and for inputs that are mostly 0.
//
// Units are worked on in blocks of kEventWidth. A result's bits do not depend on which units or
// samples are asked for together, nor on the number of threads.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ebb/cell/activity.h"
#include "ebb/cell/pattern.h"
#include "ebb/core/aligned.h"
#include "ebb/core/bytes.h"
#include "ebb/core/workers.h"
#include "ebb/device/event_sums.h"

namespace ebb {

struct ConnectionShape {
  std::int64_t gates = 0, units = 0, inputs = 0;
  std::int64_t sums = 0;   // in the rows of sums that it adds to
  int last_sum = 0;        // that the last gate adds to; the others add to their own
  std::int64_t begun = 0;  // the first gates' sums are there when forward comes, the others begin
  bool events = false;     // most inputs are 0
  bool ones = false;       // and all others are 1
  bool wants_backward = true;
};

template <class Number>
class Connection {
 public:
  // Without a pattern there is a weight from every input to every unit: [gates*units, inputs]. With
  // one, the weights are those of its entries, row after row.
  Connection(const ConnectionShape& shape, const Pattern* pattern);

  std::int64_t weights() const;
  // Forward wants its inputs as events.
  bool hears() const { return shape_.events || is_sparse_; }
  // Room for those of that many samples; all of them, where most inputs are not 0.
  Events<Number> events_at(Carver& carver, std::int64_t samples) const {
    return Events<Number>::at(carver, shape_.inputs, samples, shape_.ones);
  }
  void find_events(const Rows<Number>& row, std::int64_t samples, std::int64_t from,
                   std::int64_t to, const Events<Number>& events) const {
    for (std::int64_t stretch = from; stretch < to; ++stretch) {
      ebb::find_events(std::span(&row, 1), samples, stretch, shape_.inputs, !shape_.events, events);
    }
  }
  // Memory beside the weights and their gradient.
  std::int64_t prepared_bytes() const;
  // Units, or inputs of backward, at which work may be cut into pieces.
  std::int64_t grain() const;

  // The weights have changed.
  void prepare(Workers& workers, const Number* weights);
  // Gradients begin at 0.
  void begin();

  // sums[b * sums * 48 + sum * 48 + u] += the products of units [unit, unit + count), of one block,
  // unit a multiple of grain(). Sums that begin do so with `biases`, [sums,units]. `rows` or, if
  // hears(), `events` are the inputs.
  void forward(std::int64_t samples, std::int64_t unit, std::int64_t count, const Number* biases,
               const Rows<Number>& rows, const Events<Number>& events, Number* sums) const;
  // results[b * stride + j] += for the inputs [from,to), from a multiple of grain(). Sample b's
  // gradients of the sums are at d + b * sums * units. With `wanted` only the inputs listed there;
  // sparse weights are faster with all.
  // `scratch`: room for backward_bytes() of as many threads as there are, for each its own.
  void backward(std::int64_t samples, std::int64_t from, std::int64_t to, const Number* d,
                Number* results, std::int64_t stride, const Lists* wanted,
                std::byte* scratch) const;
  Bytes backward_bytes(int threads) const;
  // Adds to `gradient`, laid out as the weights, or keeps what finish will add. `rows[t]` are the
  // inputs of time step t, the gradients of sums follow each other time step by time step, sample by
  // sample, as backward has them. `scratch`: room for gradient_bytes().
  void gradient(Workers& workers, std::span<const Rows<Number>> rows, std::int64_t samples,
                const Number* d, std::byte* scratch, Number* gradient);
  void finish(Workers& workers, Number* gradient);
  // What gradient() needs for that many time steps.
  Bytes gradient_bytes(std::int64_t steps, std::int64_t samples, int threads) const;

 private:
  std::int64_t blocks() const { return (shape_.units + kEventWidth - 1) / kEventWidth; }
  std::int64_t panel(std::int64_t gate, std::int64_t block) const {
    return (gate * blocks() + block) * shape_.inputs * kEventWidth;
  }
  // Of packed_ (its rows are inputs, columns units) or packed_back_, the gate's part of the block
  // with column `column`.
  struct Packed {
    std::int64_t at, columns;  // in numbers; of the block
  };
  Packed packed_at(std::int64_t gate, std::int64_t column, std::int64_t rows,
                   std::int64_t columns) const;
  int sum_of(std::int64_t gate) const {
    return gate == shape_.gates - 1 ? shape_.last_sum : static_cast<int>(gate);
  }
  // Where the entries of an input begin, of a block of a sparse connection: at [input * group_blocks].
  // Those of the group's next block follow, then those of the next input.
  const std::uint32_t* starts(std::int64_t gate, std::int64_t block) const {
    const std::int64_t first = block / together_ * together_;
    return starts_.data() + (gate * blocks() + first) * shape_.inputs + block - first;
  }
  // How many blocks are in the block's group.
  std::int64_t group_blocks(std::int64_t block) const {
    return std::min(together_, blocks() - block / together_ * together_);
  }
  // The gradients of the sums of a block, from a sample's: whole, filled up in `room` where units end.
  const Number* whole_block(std::int64_t gate, std::int64_t block, const Number* d,
                            std::array<Number, kEventWidth>& room) const;
  // Numbers from sample to sample in the gradients of the sums.
  std::int64_t d_row() const { return shape_.sums * shape_.units; }
  struct GradientScratch {
    Number* inputs = nullptr;        // packed, where they are plain numbers
    Number* block = nullptr;         // [threads,rows,units], gradients of the sums of a block
    std::int32_t* counts = nullptr;  // [steps,stretches]
    Events<Number> events;           // of some time steps
  };
  GradientScratch gradient_scratch(std::byte* scratch, std::int64_t steps, std::int64_t samples,
                                   int threads, Bytes* used) const;
  void plain_gradient(Workers& workers, std::span<const Rows<Number>> rows, std::int64_t samples,
                      const Number* d, const GradientScratch& s, Number* gradient) const;
  void event_gradient(Workers& workers, std::span<const Rows<Number>> rows, std::int64_t samples,
                      const Number* d, const GradientScratch& s);
  // The gradients of a block's sums, `width` each, filled up with zeros, row after row: in place they lie
  // so far apart that caches cannot hold them.
  void copy_block(std::int64_t gate, std::int64_t block, std::int64_t rows, const Number* d,
                  std::int64_t width, Number* to) const;
  // What some events add to the gradients of a block of units; d [rows,48].
  void add_events(std::int64_t gate, std::int64_t block, const EventList<Number>& events,
                  const Number* d);
  // The entries of the group that begins with this block.
  void add_group(const Pattern& pattern, std::int64_t gate, std::int64_t block);
  // Forward of one gate and block with sparse weights.
  void sparse_forward(std::int64_t gate, std::int64_t block, const EventList<Number>& events,
                      Number* sums, std::int64_t row) const;
  // Backward of all inputs with sparse weights.
  void sparse_backward(std::int64_t samples, std::int64_t from, std::int64_t to, const Number* d,
                       Number* results, std::int64_t stride, std::byte* scratch) const;

  ConnectionShape shape_;
  bool is_sparse_ = false;
  std::int64_t pattern_weights_ = 0;
  // In the order of use: of each block, of units or of inputs, gate after gate.
  AlignedVector<Number> packed_;       // forward, plain inputs
  AlignedVector<Number> packed_back_;  // backward
  AlignedVector<Number> panels_;       // forward with events: [gate][block][input][48]
  AlignedVector<Number> of_panels_;    // their gradient
  // The weights that are there of a sparse connection: gate by gate, group of blocks by group, input by
  // input, unit by unit.
  std::int64_t together_ = 1;           // blocks of a group
  std::vector<std::uint32_t> starts_;   // of each input in each block, and the end
  std::vector<std::uint16_t> units_;    // of each entry, in its group
  std::vector<std::uint32_t> entries_;  // which weight it is
  std::vector<Number> values_;          // of the entries
  std::vector<Number> of_entries_;      // their gradient
};

}  // namespace ebb
