// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "ebb/cell/stack.h"
#include "ebb/core/at.h"
#include "ebb/core/flush_to_zero.h"

namespace ebb {

// Spikes before time step i of the tape (i = times: after the last), from where read_bits put them
// or, kept as bits, where they lie.
template <class Number>
const std::uint64_t* Stack<Number>::bits_before(std::int64_t layer, std::int64_t i,
                                                std::int64_t times, std::byte* tape,
                                                std::byte* scratch) const {
  const Layer<Number>& own = layers_[at(layer)];
  if (!own.shape().spikes) return nullptr;
  if (!own.spikes().is_list()) {
    return reinterpret_cast<const std::uint64_t*>(spikes_at(layer, i - 1, times, tape));
  }
  const std::int64_t words = options_.batch * words_of(own.options().hidden);
  return reinterpret_cast<const std::uint64_t*>(scratch + places_[at(layer)].bits) + i * words;
}

template <class Number>
void Stack<Number>::read_bits(std::int64_t times, std::byte* tape, std::byte* scratch) const {
  for (std::int64_t l = 0; l < static_cast<std::int64_t>(layers_.size()); ++l) {
    const Layer<Number>& own = layers_[at(l)];
    if (!own.shape().spikes || !own.spikes().is_list()) continue;
    const std::int64_t words = words_of(own.options().hidden);
    auto* bits = reinterpret_cast<std::uint64_t*>(scratch + places_[at(l)].bits);
    for (std::int64_t i = 0; i <= times; ++i) {
      const std::byte* const from = spikes_at(l, i - 1, times, tape);
      for (std::int64_t b = 0; b < options_.batch; ++b, bits += words) {
        own.spikes().read(from + b * own.spikes().bytes(), bits);
      }
    }
  }
}

// What the layer gave before time step i of the tape.
template <class Number>
Rows<Number> Stack<Number>::given_before(std::int64_t layer, std::int64_t i, std::int64_t times,
                                         std::byte* tape, std::byte* scratch) const {
  const Layer<Number>& own = layers_[at(layer)];
  const std::int64_t hidden = own.options().hidden;
  if (own.shape().spikes) {
    return {nullptr, bits_before(layer, i, times, tape, scratch), words_of(hidden), 1};
  }
  const std::byte* const fields =
      i == 0 ? tape + places_[at(layer)].fields : after_at(layer, i - 1, times, tape);
  return {reinterpret_cast<const Number*>(fields), nullptr, own.shape().fields * hidden, 1};
}

// Gradients of what the layers above gave become those of what this one gave.
template <class Number>
void Stack<Number>::unheard(std::int64_t layer, std::int64_t step, std::int64_t times,
                            Number* gradients, std::byte* scratch) {
  if (options_.dropout == 0 || layer == 0) return;
  const std::int64_t inputs = layers_[at(layer)].options().input;
  for (std::int64_t i = 0; i < times; ++i) {
    Number* const own = gradients + i * options_.batch * inputs;
    const Rows<Number> rows = heard({own, nullptr, inputs, 1}, layer, step * chunk_ + i, scratch);
    std::memcpy(own, rows.values, at(options_.batch * inputs) * sizeof(Number));
  }
}

template <class Number>
class Stack<Number>::FromAbove : public OutputGradients<Number> {
 public:
  FromAbove(Stack& stack, std::int64_t layer, std::int64_t step, std::byte* tape,
            std::byte* scratch, Outside<Number>& outside)
      : stack_(stack),
        layer_(layer),
        step_(step),
        tape_(tape),
        scratch_(scratch),
        outside_(outside) {}

  const Number* at(std::int64_t i) override {
    const std::int64_t times = stack_.times_of(step_);
    if (layer_ + 1 == static_cast<std::int64_t>(stack_.layers_.size())) {
      auto* const own = reinterpret_cast<Number*>(scratch_ + stack_.top_gradient_);
      const Rows<Number> output = stack_.given_before(layer_, i + 1, times, tape_, scratch_);
      return outside_.output_gradient(step_ * stack_.chunk_ + i, output, own) ? own : nullptr;
    }
    const std::int64_t row =
        stack_.options_.batch * stack_.layers_[ebb::at(layer_)].options().hidden;
    const auto* const all =
        reinterpret_cast<const Number*>(scratch_ + stack_.of_outputs_at_[ebb::at(layer_ % 2)]);
    if (!stack_.options_.pipelined) return all + i * row;
    return i + 1 < times ? all + (i + 1) * row : nullptr;
  }

 private:
  Stack& stack_;
  std::int64_t layer_, step_;
  std::byte* tape_;
  std::byte* scratch_;
  Outside<Number>& outside_;
};

// What the layer above read at the first time step was the state before the tape.
template <class Number>
void add_from_above(const Layer<Number>& layer, std::int64_t batch, const Number* from_above,
                    Number* fields, Number* of_spikes) {
  Number* const output = layer.shape().spikes ? of_spikes : fields;
  const std::int64_t hidden = layer.options().hidden;
  const std::int64_t row = (layer.shape().spikes ? 1 : layer.shape().fields) * hidden;
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t u = 0; u < hidden; ++u) output[b * row + u] += from_above[b * hidden + u];
  }
}

template <class Number>
void Stack<Number>::reverse_layer(std::int64_t l, std::int64_t step, std::byte* tape,
                                  std::byte* adjoint, std::byte* scratch, Number* gradient,
                                  Outside<Number>& outside) {
  Layer<Number>& layer = layers_[at(l)];
  const LayerOffsets& place = places_[at(l)];
  const auto layers = static_cast<std::int64_t>(layers_.size());
  const std::int64_t times = times_of(step), batch = options_.batch;
  const std::int64_t inputs = layer.options().input;
  const auto* const from_above =
      reinterpret_cast<const Number*>(scratch + of_outputs_at_[at(l % 2)]);
  auto* const of_inputs = reinterpret_cast<Number*>(scratch + of_outputs_at_[at((l + 1) % 2)]);
  for (std::int64_t i = 0; i < times; ++i) {
    const std::int64_t t = step * chunk_ + i;
    after_[at(i)] = reinterpret_cast<const Number*>(after_at(l, i, times, tape));
    bits_[at(i)] = bits_before(l, i, times, tape, scratch);
    const Rows<Number> input =
        l == 0 ? outside.input(t)
               : given_before(l - 1, options_.pipelined ? i : i + 1, times, tape, scratch);
    inputs_[at(i)] = heard(input, l, t, scratch + reverse_mask_ + i * masked_bytes(l));
  }
  FromAbove of_outputs(*this, l, step, tape, scratch, outside);
  LayerTape<Number> view;
  view.steps = times;
  view.first = step * chunk_;
  view.before = reinterpret_cast<const Number*>(tape + place.fields);
  view.after = std::span(after_).first(at(times));
  view.saved = reinterpret_cast<Number*>(tape + place.saved);
  view.bits = std::span(bits_).first(at(times));
  view.inputs = std::span(inputs_).first(at(times));
  view.of_outputs = &of_outputs;
  view.of_inputs = l > 0 || options_.input_gradient ? of_inputs : nullptr;
  auto* const fields = reinterpret_cast<Number*>(adjoint + place.fields);
  auto* const of_spikes = reinterpret_cast<Number*>(adjoint + place.of_spikes);
  layer.reverse(*workers_, view, lengths_.empty() ? nullptr : lengths_.data(), fields, of_spikes,
                gradient + place.parameters, scratch + reverse_layer_);
  if (options_.pipelined && l < layers - 1) {
    add_from_above(layer, batch, from_above, fields, of_spikes);
  }
  if (l > 0) {
    unheard(l, step, times, of_inputs, scratch + reverse_mask_);
  } else if (options_.input_gradient) {
    for (std::int64_t i = times - 1; i >= 0; --i) {
      outside.input_gradient(step * chunk_ + i,
                             {of_inputs + i * batch * inputs, at(batch * inputs)});
    }
  }
}

template <class Number>
void Stack<Number>::reverse(std::int64_t step, std::byte* tape, std::byte* adjoint,
                            std::byte* scratch, Number* gradient, Outside<Number>& outside) {
  const FlushToZero flush;
  read_bits(times_of(step), tape, scratch);
  for (std::int64_t l = static_cast<std::int64_t>(layers_.size()) - 1; l >= 0; --l) {
    reverse_layer(l, step, tape, adjoint, scratch, gradient, outside);
  }
}

template void Stack<float>::reverse(std::int64_t, std::byte*, std::byte*, std::byte*, float*,
                                    Outside<float>&);
template void Stack<double>::reverse(std::int64_t, std::byte*, std::byte*, std::byte*, double*,
                                     Outside<double>&);

}  // namespace ebb
