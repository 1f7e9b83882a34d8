// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ebb/cell/layer.h"
#include "ebb/core/carver.h"

namespace ebb {

template <class Number>
typename Layer<Number>::ForwardScratch Layer<Number>::forward_scratch(std::byte* scratch,
                                                                      int threads,
                                                                      Bytes* used) const {
  const std::int64_t batch = place_.batch, hidden = options_.hidden;
  const auto lists = [&](Carver& carver, std::int64_t width, bool values) {
    return Lists<Number>{carver.take<std::uint16_t>(batch * width),
                         values ? carver.take<Number>(batch * width) : nullptr,
                         carver.take<std::int32_t>(batch), width};
  };
  Carver carver(scratch);
  ForwardScratch s{};
  if (shape_.spikes) {
    s.spikes = carver.take<std::uint8_t>(batch * hidden);
    s.bits = carver.take<std::uint64_t>(batch * words_of(hidden));
    s.dropped = carver.take<std::int32_t>(batch);
  }
  if (has_recurrent() && connections_[1].lists()) s.own = lists(carver, hidden, !shape_.spikes);
  if (connections_[0].lists()) {
    s.input = lists(carver, options_.input, !place_.input_spikes || place_.scaled);
  }
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
      std::uint8_t* const own = forward_.spikes + b * hidden;
      for (std::int64_t u = 0; u < hidden; ++u) {
        own[u] = static_cast<std::uint8_t>(forward_.bits[b * words + u / 64] >> (u % 64) & 1);
      }
    }
  }
  if (forward_.own.inputs != nullptr) {
    list_rows(output(fields), 0, place_.batch, hidden, !shape_.events, forward_.own);
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

// Which spikes are heard of the samples [from,to), and the lists for the next time step.
template <class Number>
void Layer<Number>::hear(std::int64_t from, std::int64_t to, const Number* after) {
  const std::int64_t hidden = options_.hidden;
  if (shape_.spikes) {
    for (std::int64_t b = from; b < to; ++b) {
      std::uint8_t* const spikes = forward_.spikes + b * hidden;
      forward_.dropped[b] = 0;
      if (most_ < hidden) {
        std::int64_t heard = 0;
        for (std::int64_t u = 0; u < hidden; ++u) {
          if (spikes[u] == 0 || heard++ < most_) continue;
          spikes[u] = 0;
          ++forward_.dropped[b];
        }
      }
      pack_bits(spikes, hidden, forward_.bits + b * words_of(hidden));
    }
  }
  if (forward_.own.inputs != nullptr) {
    list_rows(output(after), from, to, hidden, !shape_.events, forward_.own);
  }
}

template <class Number>
void Layer<Number>::forward(Workers& workers, const Rows<Number>& input, const std::uint8_t* idle,
                            const Number* before, Number* after, Number* saved) {
  const std::int64_t batch = place_.batch, hidden = options_.hidden;
  if (forward_.input.inputs != nullptr) {
    workers.split(batch, 1, [&](std::int64_t from, std::int64_t to) {
      list_rows(input, from, to, options_.input, !place_.events, forward_.input);
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
      // The connections begin the sums; without a recurrent one nobody does those of its own.
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
  if (!shape_.events && forward_.own.inputs == nullptr) return;
  workers.split(batch, 1, [&](std::int64_t from, std::int64_t to) { hear(from, to, after); });
  dropped_ = 0;
  if (shape_.spikes) {
    for (std::int64_t b = 0; b < batch; ++b) dropped_ += forward_.dropped[b];
  }
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
