// SPDX-License-Identifier: Apache-2.0
#include "ebb/cell/stack.h"

#include <algorithm>
#include <memory>

#include "ebb/core/at.h"
#include "ebb/core/error.h"

namespace ebb {
namespace {

Bytes place_of(Carver& carver, Bytes bytes) {
  const Bytes place = carver.used();
  carver.take<std::byte>(bytes);
  return place;
}

// Enough rows for the weight gradient's product to run at full speed and for a tape's two states to
// weigh little, but some dozens of steps, so that there is something to plan. Where units spike, more:
// what a tape's first product back costs, and going once through the gradient of every weight, is
// then much of the time. But a tape may not take the memory that small budgets have for states.
std::int64_t chosen_chunk(const StackOptions& options) {
  constexpr std::int64_t usual_rows = 96, usual_least = 3, usual_steps = 50, event_rows = 512,
                         event_steps = 125;
  const auto spikes = [&](const CellRow& row) {
    return row.spikes && std::ranges::count(options.layers, row.name, &LayerOptions::cell) > 0;
  };
  const auto steps_for = [&](std::int64_t rows, std::int64_t least, std::int64_t steps) {
    const std::int64_t wanted = std::max(least, (rows + options.batch - 1) / options.batch);
    return std::clamp<std::int64_t>(wanted, 1,
                                    std::max<std::int64_t>(1, options.time_steps / steps));
  };
  const std::int64_t usual = steps_for(usual_rows, usual_least, usual_steps);
  if (!std::ranges::any_of(cells(), spikes)) return usual;
  return std::max(usual, steps_for(event_rows, 1, event_steps));
}

// Waking a thread takes as long as some ten thousand operations: small nets are faster on fewer.
template <class Number>
int useful_threads(const std::vector<Layer<Number>>& layers, std::int64_t batch, int threads) {
  constexpr double operations_each = 30'000, few_events = 0.1;
  double operations = 0;
  for (const Layer<Number>& layer : layers) {
    const LayerOptions& own = layer.options();
    const auto weights =
        static_cast<double>(layer.shape().gates * own.hidden * (own.input + own.hidden));
    const double share = layer.shape().spikes ? few_events : 1;
    operations = std::max(operations, 2 * share * weights * static_cast<double>(batch));
  }
  return std::clamp(static_cast<int>(std::min(operations / operations_each, 1e6)), 1, threads);
}

constexpr std::int64_t kMostBatch = 65'535;

}  // namespace

template <class Number>
Stack<Number>::Stack(const StackOptions& options, int threads) : options_(options) {
  check();
  if (threads < 1 || threads > Workers::kMost) {
    fail(ErrorCode::invalid_argument, "threads is ", threads, "; it must be 1 to ", Workers::kMost);
  }
  chunk_ =
      options_.chunk > 0 ? std::min(options_.chunk, options_.time_steps) : chosen_chunk(options_);
  add_layers();
  workers_ = std::make_unique<Workers>(useful_threads(layers_, options_.batch, threads));
  lay_out();
  idle_.resize(at(options_.batch));
  inputs_.resize(at(chunk_));
  after_.resize(at(chunk_));
  bits_.resize(at(chunk_));
  now_.resize(layers_.size());
  next_.resize(layers_.size());
}

template <class Number>
void Stack<Number>::check() const {
  if (options_.layers.empty()) {
    fail(ErrorCode::invalid_argument, "a stack needs 1 layer or more");
  }
  if (options_.time_steps < 1) {
    fail(ErrorCode::invalid_argument, "there are ", options_.time_steps,
         " time steps; there must be 1 or more");
  }
  if (options_.batch < 1 || options_.batch > kMostBatch) {
    fail(ErrorCode::invalid_argument, "the batch is ", options_.batch, "; it must be 1 to ",
         kMostBatch);
  }
  if (options_.chunk < 0) {
    fail(ErrorCode::invalid_argument, "the chunk is ", options_.chunk, "; it must be 0 or more");
  }
  if (!(options_.dropout >= 0) || options_.dropout >= 1) {
    fail(ErrorCode::invalid_argument, "dropout is ", options_.dropout,
         "; it must be 0 or more and below 1");
  }
}

template <class Number>
void Stack<Number>::add_layers() {
  bool events = options_.input_spikes, spikes = options_.input_spikes;
  std::int64_t below = 0;
  layers_.reserve(options_.layers.size());
  for (std::size_t i = 0; i < options_.layers.size(); ++i) {
    LayerOptions layer = options_.layers[i];
    if (i > 0 && layer.input != 0 && layer.input != below) {
      fail(ErrorCode::invalid_argument, "layer ", i, " has ", layer.input,
           " inputs, but the layer below it has ", below, " units; leave the inputs out");
    }
    if (i > 0) layer.input = below;
    layer.seed += 2 * i;  // other patterns than the layer below
    LayerPlace place;
    place.batch = options_.batch;
    place.chunk = chunk_;
    place.events = events;
    place.input_spikes = spikes;
    place.scaled = i > 0 && options_.dropout > 0;
    place.input_gradient = i > 0 || options_.input_gradient;
    const Layer<Number>& made = layers_.emplace_back(layer, place);
    for (const ParameterShape& own : made.parameters()) {
      const bool is_input = own.name.ends_with("_ih"), is_recurrent = own.name.ends_with("_hh");
      parameters_.push_back({own.name + "_l" + std::to_string(i), own.shape,
                             parameter_size_ + own.offset, own.size, own.value, own.learns,
                             static_cast<std::int64_t>(i),
                             is_input ? layer.input : (is_recurrent ? layer.hidden : 0)});
    }
    places_.emplace_back().parameters = parameter_size_;
    parameter_size_ += made.parameter_size();
    below = layer.hidden;
    events = made.shape().events;
    spikes = made.shape().spikes;
  }
}

template <class Number>
void Stack<Number>::lay_out_state(Carver& state) {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    places_[i].fields = place_of(state, layers_[i].field_bytes());
    places_[i].spikes = place_of(state, layers_[i].spike_bytes());
  }
  state_bytes_ = state.used();
}

template <class Number>
void Stack<Number>::lay_out() {
  const std::int64_t batch = options_.batch;
  const int threads = workers_->size();
  Carver state(nullptr);
  lay_out_state(state);
  Carver adjoint = state, tape = state, forward(nullptr), reverse(nullptr);
  Bytes masked = 0, reverse_layer = 0;
  std::array<Bytes, 2> gradients{};  // of the inputs of every other layer
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer<Number>& layer = layers_[i];
    LayerOffsets& place = places_[i];
    const std::int64_t hidden = layer.options().hidden, inputs = layer.options().input;
    if (layer.shape().spikes) {
      place.of_spikes = place_of(adjoint, batch * hidden * Bytes{sizeof(Number)});
    }
    place.saved = place_of(tape, chunk_ * layer.saved_bytes());
    Carver one(nullptr);
    place_of(one, layer.field_bytes());
    place.spikes_after = place_of(one, layer.spike_bytes());
    place.after_stride = one.used();
    place.after = place_of(tape, (chunk_ - 1) * place.after_stride);
    place.forward = place_of(forward, layer.forward_bytes(threads));
    place.next = place_of(forward, layer.field_bytes());
    if (layer.shape().spikes && layer.spikes().is_list()) {
      place.bits = place_of(reverse, (chunk_ + 1) * batch * words_of(hidden) * 8);
    }
    if (i > 0 && options_.dropout > 0) {
      masked = std::max(masked, masked_bytes(static_cast<std::int64_t>(i)));
    }
    if (i > 0 || options_.input_gradient) {
      Bytes& own = gradients[(i + 1) % 2];
      own = std::max(own, chunk_ * batch * inputs * Bytes{sizeof(Number)});
    }
    reverse_layer = std::max(reverse_layer, layer.reverse_bytes(threads));
  }
  adjoint_bytes_ = adjoint.used();
  last_state_ = place_of(tape, state_bytes_);
  tape_bytes_ = tape.used();
  forward_mask_ = place_of(forward, masked);
  reverse_mask_ = place_of(reverse, chunk_ * masked);
  top_gradient_ = place_of(reverse, batch * outputs() * Bytes{sizeof(Number)});
  for (std::size_t i : {0, 1}) of_outputs_at_[i] = place_of(reverse, gradients[i]);
  reverse_layer_ = place_of(reverse, reverse_layer);
  scratch_bytes_ = std::max(forward.used(), reverse.used());
}

// Of a layer's inputs at one time step as dropout leaves them: numbers or bits.
template <class Number>
Bytes Stack<Number>::masked_bytes(std::int64_t layer) const {
  const std::int64_t inputs = layers_[at(layer)].options().input;
  constexpr Bytes word = sizeof(std::uint64_t);
  // In whole words, since masks lie one behind the other.
  const Bytes numbers = (options_.batch * inputs * Bytes{sizeof(Number)} + word - 1) / word * word;
  return std::max(numbers, options_.batch * words_of(inputs) * word);
}

template <class Number>
Bytes Stack<Number>::prepared_bytes() const {
  Bytes bytes = 0;
  for (const Layer<Number>& layer : layers_) bytes += layer.prepared_bytes();
  return bytes;
}

template <class Number>
Bytes Stack<Number>::lean_bytes() const {
  Bytes bytes = 0;
  for (const Layer<Number>& layer : layers_) {
    bytes += layer.saved_bytes() + layer.field_bytes() + layer.spike_bytes();
  }
  return bytes;
}

template <class Number>
void Stack<Number>::prepare(const Number* parameters, std::uint64_t iteration) {
  iteration_ = iteration;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    layers_[i].prepare(*workers_, parameters + places_[i].parameters);
  }
}

template <class Number>
void Stack<Number>::set_lengths(std::span<const std::int64_t> lengths) {
  if (!lengths.empty() && static_cast<std::int64_t>(lengths.size()) != options_.batch) {
    fail(ErrorCode::invalid_argument, "there are ", lengths.size(), " lengths; there must be ",
         options_.batch, ", one for each sample, or none");
  }
  for (const std::int64_t length : lengths) {
    if (length < 0 || length > options_.time_steps) {
      fail(ErrorCode::invalid_argument, "a length is ", length, "; it must be 0 to ",
           options_.time_steps, ", the time steps");
    }
  }
  lengths_.assign(lengths.begin(), lengths.end());
}

template <class Number>
void Stack<Number>::begin() {
  dropped_ = spikes_ = spike_places_ = 0;
  for (Layer<Number>& layer : layers_) layer.begin();
}

template <class Number>
void Stack<Number>::finish(Number* gradient) {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    layers_[i].finish(*workers_, gradient + places_[i].parameters);
  }
}

template <class Number>
double Stack<Number>::activity() const {
  return spike_places_ == 0 ? 0 : static_cast<double>(spikes_) / static_cast<double>(spike_places_);
}

template class Stack<float>;
template class Stack<double>;

}  // namespace ebb
