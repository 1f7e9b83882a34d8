// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "ebb/cell/layer.h"
#include "ebb/core/carver.h"

namespace ebb {

template <class Number>
typename Layer<Number>::ForwardScratch Layer<Number>::forward_scratch(std::byte* scratch,
                                                                      int threads,
                                                                      Bytes* used) const {
  const std::int64_t batch = place_.batch, hidden = options_.hidden;
  Carver carver(scratch);
  ForwardScratch s{};
  if (shape_.spikes) {
    s.spikes = carver.take<std::uint8_t>(batch * hidden);
    s.bits = carver.take<std::uint64_t>(batch * words_of(hidden));
    s.dropped = carver.take<std::int32_t>(batch);
  }
  if (has_recurrent() && connections_[1].hears()) s.own = connections_[1].events_at(carver, batch);
  if (connections_[0].hears()) s.input = connections_[0].events_at(carver, batch);
  s.sums = carver.take<Number>(std::min<std::int64_t>(threads, (hidden + grain() - 1) / grain()) *
                               batch * shape_.sums * kEventWidth);
  *used = carver.used();
  return s;
}

template <class Number>
Bytes Layer<Number>::forward_bytes(int threads) const {
  Bytes used = 0;
  forward_scratch(nullptr, threads, &used);
  return used;
}

template <class Number>
void Layer<Number>::start(Workers& workers, const Number* fields, const std::byte* spikes,
                          std::byte* scratch) {
  Bytes used = 0;
  forward_ = forward_scratch(scratch, workers.size(), &used);
  const std::int64_t hidden = options_.hidden, words = words_of(hidden);
  if (shape_.spikes) {
    for (std::int64_t b = 0; b < place_.batch; ++b) {
      format_.read(spikes + b * format_.bytes(), forward_.bits + b * words);
      unpack_bits(forward_.bits + b * words, hidden, forward_.spikes + b * hidden);
    }
  }
  if (forward_.own.rows != nullptr) {
    connections_[1].find_events(output(fields), place_.batch, 0, words, forward_.own);
  }
}

template <class Number>
Rows<Number> Layer<Number>::output(const Number* after) const {
  if (shape_.spikes) return {nullptr, forward_.bits, words_of(options_.hidden), 1};
  return {after, nullptr, shape_.fields * options_.hidden, 1};
}

template <class Number>
void Layer<Number>::keep_spikes(std::byte* to) const {
  if (!shape_.spikes) return;
  for (std::int64_t b = 0; b < place_.batch; ++b) {
    format_.write(forward_.bits + b * words_of(options_.hidden), to + b * format_.bytes());
  }
}

// Spikes of the samples [from,to) that are not heard, since more units fired than may.
template <class Number>
void Layer<Number>::drop(std::int64_t from, std::int64_t to) {
  const std::int64_t hidden = options_.hidden;
  for (std::int64_t b = from; b < to; ++b) {
    std::uint8_t* const spikes = forward_.spikes + b * hidden;
    std::int64_t heard = 0;
    forward_.dropped[b] = 0;
    for (std::int64_t u = 0; u < hidden; ++u) {
      if (spikes[u] == 0 || heard++ < most_) continue;
      spikes[u] = 0;
      ++forward_.dropped[b];
    }
  }
}

// What the next time step hears of units, those of the words [from,to) of bits.
template <class Number>
void Layer<Number>::hear(std::int64_t from, std::int64_t to, const Number* after) {
  const std::int64_t hidden = options_.hidden;
  if (shape_.spikes) {
    const std::int64_t first = from * 64, count = std::min(to * 64, hidden) - first;
    for (std::int64_t b = 0; b < place_.batch; ++b) {
      pack_bits(forward_.spikes + b * hidden + first, count,
                forward_.bits + b * words_of(hidden) + from);
    }
  }
  if (forward_.own.rows != nullptr) {
    connections_[1].find_events(output(after), place_.batch, from, to, forward_.own);
  }
}

template <class Number>
void Layer<Number>::forward(Workers& workers, const Rows<Number>& input, const std::uint8_t* idle,
                            const Number* before, Number* after, Number* saved) {
  const std::int64_t batch = place_.batch, hidden = options_.hidden;
  if (forward_.input.rows != nullptr) {
    workers.split(words_of(options_.input), 1, [&](std::int64_t from, std::int64_t to) {
      connections_[0].find_events(input, batch, from, to, forward_.input);
    });
  }
  const std::int64_t field_row = shape_.fields * hidden, sum_row = shape_.sums * kEventWidth;
  const Rows<Number> own{before, nullptr, field_row, 1};
  workers.split_by_thread(hidden, grain(), [&](int thread, std::int64_t from, std::int64_t to) {
    // Threads without a piece have no room: a thread's piece comes no later than itself.
    Number* const sums =
        forward_.sums + std::min<std::int64_t>(thread, from / grain()) * batch * sum_row;
    for (std::int64_t unit = from; unit < to; unit = (unit / kEventWidth + 1) * kEventWidth) {
      const std::int64_t count = std::min(kEventWidth - unit % kEventWidth, to - unit);
      // The connections begin the sums; without a recurrent one its own are not begun.
      const std::int64_t others = has_recurrent() ? shape_.sums : shape_.gates;
      for (std::int64_t s = others; s < shape_.sums; ++s) {
        for (std::int64_t b = 0; b < batch; ++b) {
          std::copy_n(biases_.data() + s * hidden + unit, count,
                      sums + b * sum_row + s * kEventWidth);
        }
      }
      const Number* const biases = biases_.data();
      connections_[0].forward(batch, unit, count, biases, input, forward_.input, sums);
      if (has_recurrent()) {
        connections_[1].forward(batch, unit, count, biases, own, forward_.own, sums);
      }
      ForwardBlock<Number> block;
      block.rows = batch;
      block.units = count;
      block.idle = idle;
      block.sums = {sums, sum_row, kEventWidth};
      block.before = {before + unit, field_row, hidden};
      block.parameters = {unit_parameters_.data() + unit, 0, hidden};
      block.after = {after + unit, field_row, hidden};
      if (saved != nullptr) block.saved = {saved + unit, shape_.saved * hidden, hidden};
      if (shape_.spikes) {
        block.spikes_before = {forward_.spikes + unit, hidden};
        block.spikes = {forward_.spikes + unit, hidden};
      }
      block.constants = constants_;
      loops_.forward(block);
    }
  });
  if (!shape_.events && forward_.own.rows == nullptr) return;
  dropped_ = 0;
  if (most_ < hidden) {
    workers.split(batch, 1, [&](std::int64_t from, std::int64_t to) { drop(from, to); });
    dropped_ = std::accumulate(forward_.dropped, forward_.dropped + batch, std::int64_t{0});
  }
  workers.split(words_of(hidden), 1,
                [&](std::int64_t from, std::int64_t to) { hear(from, to, after); });
}

template Bytes Layer<float>::forward_bytes(int) const;
template Bytes Layer<double>::forward_bytes(int) const;
template void Layer<float>::start(Workers&, const float*, const std::byte*, std::byte*);
template void Layer<double>::start(Workers&, const double*, const std::byte*, std::byte*);
template Rows<float> Layer<float>::output(const float*) const;
template Rows<double> Layer<double>::output(const double*) const;
template void Layer<float>::keep_spikes(std::byte*) const;
template void Layer<double>::keep_spikes(std::byte*) const;
template void Layer<float>::forward(Workers&, const Rows<float>&, const std::uint8_t*, const float*,
                                    float*, float*);
template void Layer<double>::forward(Workers&, const Rows<double>&, const std::uint8_t*,
                                     const double*, double*, double*);

}  // namespace ebb
