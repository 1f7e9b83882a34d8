// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cstring>

#include "ebb/cell/stack.h"
#include "ebb/core/at.h"
#include "ebb/core/flush_to_zero.h"
#include "ebb/core/random.h"

namespace ebb {

template <class Number>
std::int64_t Stack<Number>::times_of(std::int64_t step) const {
  return std::min(chunk_, options_.time_steps - step * chunk_);
}

// `rows` as layer `layer` hears them at time step t, at `to` if anything is left out. Backward asks
// for the same again.
template <class Number>
Rows<Number> Stack<Number>::heard(const Rows<Number>& rows, std::int64_t layer, std::int64_t t,
                                  std::byte* to) {
  if (options_.dropout == 0 || !drops_ || layer == 0) return rows;
  const std::int64_t inputs = layers_[at(layer)].options().input;
  const auto scale = static_cast<Number>(1 / (1 - options_.dropout));
  const Random random(options_.seed, iteration_,
                      (static_cast<std::uint64_t>(layer) << 48) ^ static_cast<std::uint64_t>(t));
  const auto kept = [&](std::int64_t b, std::int64_t i) {
    const std::int64_t place = (options_.first_sample + b) * inputs + i;
    return random.uniform(static_cast<std::uint64_t>(place)) >= options_.dropout;
  };
  const std::int64_t words = words_of(inputs);
  auto* const values = reinterpret_cast<Number*>(to);
  auto* const bits = reinterpret_cast<std::uint64_t*>(to);
  workers_->split(options_.batch, 1, [&](std::int64_t from, std::int64_t until) {
    for (std::int64_t b = from; b < until; ++b) {
      if (rows.bits != nullptr) {
        for (std::int64_t w = 0; w < words; ++w) {
          std::uint64_t word = 0;
          for_each_bit(rows.bits[b * rows.stride + w], 0, [&](std::int64_t i) {
            if (kept(b, w * 64 + i)) word |= std::uint64_t{1} << i;
          });
          bits[b * words + w] = word;
        }
      } else {
        for (std::int64_t i = 0; i < inputs; ++i) {
          values[b * inputs + i] =
              kept(b, i) ? scale * rows.values[b * rows.stride + i] : Number{0};
        }
      }
    }
  });
  if (rows.bits != nullptr) return {nullptr, bits, words, scale};
  return {values, nullptr, inputs, 1};
}

template <class Number>
void Stack<Number>::count(std::int64_t layer) {
  const Layer<Number>& own = layers_[at(layer)];
  if (!own.shape().spikes) return;
  const Rows<Number> rows = own.output(nullptr);
  for (std::int64_t b = 0; b < options_.batch; ++b) {
    if (idle_[at(b)] != 0) continue;
    spike_places_ += own.options().hidden;
    for (std::int64_t w = 0; w < rows.stride; ++w)
      spikes_ += std::popcount(rows.bits[b * rows.stride + w]);
  }
  dropped_ += own.dropped();
}

template <class Number>
void Stack<Number>::forward(std::int64_t step, bool first, std::byte* state, std::byte* tape,
                            std::byte* scratch, Outside<Number>& outside) {
  const FlushToZero flush;
  const auto layers = static_cast<std::int64_t>(layers_.size());
  if (tape != nullptr) std::memcpy(tape, state, at(state_bytes_));
  for (std::int64_t l = 0; l < layers; ++l) {
    const LayerOffsets& place = places_[at(l)];
    now_[at(l)] = reinterpret_cast<Number*>((tape != nullptr ? tape : state) + place.fields);
    next_[at(l)] = reinterpret_cast<Number*>(scratch + place.next);
    layers_[at(l)].start(*workers_, now_[at(l)], state + place.spikes, scratch + place.forward);
  }
  const std::int64_t times = times_of(step);
  for (std::int64_t i = 0; i < times; ++i) {
    const std::int64_t t = step * chunk_ + i;
    for (std::size_t b = 0; b < idle_.size(); ++b) {
      idle_[b] = !lengths_.empty() && t >= lengths_[b] ? 1 : 0;
    }
    // A pipelined layer reads the one below before that moves on.
    for (std::int64_t k = 0; k < layers; ++k) {
      const std::int64_t l = options_.pipelined ? layers - 1 - k : k;
      Layer<Number>& layer = layers_[at(l)];
      const LayerOffsets& place = places_[at(l)];
      Rows<Number> input = l == 0 ? outside.input(t) : layers_[at(l - 1)].output(now_[at(l - 1)]);
      input = heard(input, l, t, scratch + forward_mask_);
      Number* saved = nullptr;
      if (tape != nullptr) {
        std::byte* const after = after_at(l, i, times, tape);
        next_[at(l)] = reinterpret_cast<Number*>(after);
        saved = reinterpret_cast<Number*>(tape + place.saved + i * layer.saved_bytes());
      }
      layer.forward(*workers_, input, idle_.data(), now_[at(l)], next_[at(l)], saved);
      if (tape != nullptr) layer.keep_spikes(spikes_at(l, i, times, tape));
      std::swap(now_[at(l)], next_[at(l)]);
      if (first) count(l);
    }
    if (first) outside.output(t, layers_.back().output(now_.back()));
  }
  for (std::int64_t l = 0; l < layers; ++l) {
    const LayerOffsets& place = places_[at(l)];
    std::byte* const to = state + place.fields;
    const auto* const from = reinterpret_cast<const std::byte*>(now_[at(l)]);
    if (from != to) std::memcpy(to, from, at(layers_[at(l)].field_bytes()));
    layers_[at(l)].keep_spikes(state + place.spikes);
  }
}

template <class Number>
std::byte* Stack<Number>::after_at(std::int64_t layer, std::int64_t i, std::int64_t times,
                                   std::byte* tape) const {
  const LayerOffsets& place = places_[at(layer)];
  if (i == times - 1) return tape + last_state_ + place.fields;
  return tape + place.after + i * place.after_stride;
}

template <class Number>
std::byte* Stack<Number>::spikes_at(std::int64_t layer, std::int64_t i, std::int64_t times,
                                    std::byte* tape) const {
  const LayerOffsets& place = places_[at(layer)];
  if (i < 0) return tape + place.spikes;
  if (i == times - 1) return tape + last_state_ + place.spikes;
  return tape + place.after + i * place.after_stride + place.spikes_after;
}

template std::int64_t Stack<float>::times_of(std::int64_t) const;
template std::int64_t Stack<double>::times_of(std::int64_t) const;
template Rows<float> Stack<float>::heard(const Rows<float>&, std::int64_t, std::int64_t,
                                         std::byte*);
template Rows<double> Stack<double>::heard(const Rows<double>&, std::int64_t, std::int64_t,
                                           std::byte*);
template void Stack<float>::forward(std::int64_t, bool, std::byte*, std::byte*, std::byte*,
                                    Outside<float>&);
template void Stack<double>::forward(std::int64_t, bool, std::byte*, std::byte*, std::byte*,
                                     Outside<double>&);
template std::byte* Stack<float>::after_at(std::int64_t, std::int64_t, std::int64_t,
                                           std::byte*) const;
template std::byte* Stack<double>::after_at(std::int64_t, std::int64_t, std::int64_t,
                                            std::byte*) const;
template std::byte* Stack<float>::spikes_at(std::int64_t, std::int64_t, std::int64_t,
                                            std::byte*) const;
template std::byte* Stack<double>::spikes_at(std::int64_t, std::int64_t, std::int64_t,
                                             std::byte*) const;

}  // namespace ebb
