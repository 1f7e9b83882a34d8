// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "ebb/cell/layer.h"
#include "ebb/core/at.h"
#include "ebb/core/carver.h"

namespace ebb {
namespace {

// Units whose bias gradients are summed up together: rows are read in long pieces.
constexpr std::int64_t kBiases = 4 * kEventWidth;

}  // namespace

template <class Number>
typename Layer<Number>::ReverseScratch Layer<Number>::reverse_scratch(std::byte* scratch,
                                                                      int threads,
                                                                      Bytes* used) const {
  const std::int64_t batch = place_.batch, hidden = options_.hidden;
  const std::int64_t rows = place_.chunk * batch;
  Carver carver(scratch);
  ReverseScratch s{};
  s.idle = carver.take<std::uint8_t>(batch);
  if (shape_.spikes) {
    s.spikes = carver.take<std::uint8_t>(batch * hidden);
    if (most_ < hidden) s.listed = carver.take<std::uint8_t>(batch * hidden);
  }
  if (is_masked_) {
    s.support = carver.take<std::uint8_t>(batch * hidden);
    s.wanted = {carver.take<std::uint16_t>(batch * hidden), carver.take<std::int32_t>(batch),
                hidden};
  }
  if (!in_place()) s.of_sums = carver.take<Number>(rows * shape_.sums * hidden);
  Bytes products = 0;
  for (const Connection<Number>& own : connections_) {
    products = std::max({products, own.gradient_bytes(place_.chunk, batch, threads),
                         threads * own.backward_bytes(threads)});
  }
  s.products = carver.take<std::byte>(products);
  *used = carver.used();
  return s;
}

template <class Number>
Bytes Layer<Number>::reverse_bytes(int threads) const {
  Bytes used = 0;
  reverse_scratch(nullptr, threads, &used);
  return used;
}

// Which units of the samples [from,to) pass gradients through their outputs at time step t.
template <class Number>
void Layer<Number>::mark(std::int64_t from, std::int64_t to, const LayerTape<Number>& tape,
                         std::int64_t t, const ReverseScratch& s) const {
  const std::int64_t batch = place_.batch, hidden = options_.hidden;
  SupportBlock<Number> block;
  block.rows = to - from;
  block.units = hidden;
  block.surrogate = surrogate_;
  block.after = {tape.after[at(t)] + from * shape_.fields * hidden, shape_.fields * hidden, hidden};
  block.saved = {tape.saved + (t * batch + from) * shape_.saved * hidden, shape_.saved * hidden,
                 hidden};
  block.parameters = {unit_parameters_.data(), 0, hidden};
  block.support = {s.support + from * hidden, hidden};
  block.constants = constants_;
  loops_.support(block);
  for (std::int64_t b = from; b < to; ++b) {
    const std::uint8_t* const support = s.support + b * hidden;
    if (s.listed != nullptr) {
      std::uint8_t* const listed = s.listed + b * hidden;
      std::fill_n(listed, hidden, std::uint8_t{0});
      std::int64_t left = most_;
      for (const int kind : {kFires | kPasses, kPasses}) {
        for (std::int64_t u = 0; u < hidden && left > 0; ++u) {
          if (support[u] != kind) continue;
          listed[u] = 1;
          --left;
        }
      }
    }
    std::int32_t count = 0;
    for (std::int64_t u = 0; u < hidden; ++u) {
      // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): units that spike have a support
      const auto passes = [&] { return (support[u] & kPasses) != 0; };
      const bool is = s.listed != nullptr ? s.listed[b * hidden + u] != 0 : passes();
      s.wanted.units[b * hidden + count] = static_cast<std::uint16_t>(u);
      count += is ? 1 : 0;
    }
    s.wanted.counts[b] = count;  // NOLINT(clang-analyzer-core.NullDereference)
  }
}

template <class Number>
void Layer<Number>::pointwise(std::int64_t from, std::int64_t to, const LayerTape<Number>& tape,
                              std::int64_t t, const ReverseScratch& s, const Number* given,
                              Number* adjoint, Number* output) {
  const std::int64_t batch = place_.batch, hidden = options_.hidden, row = output_row();
  const std::int64_t count = to - from, field_row = shape_.fields * hidden;
  if (given != nullptr) {
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t u = from; u < to; ++u) output[b * row + u] += given[b * hidden + u];
    }
  }
  Number* const saved = tape.saved + t * batch * shape_.saved * hidden;
  Number* const sums = in_place() ? saved : s.of_sums + t * batch * shape_.sums * hidden;
  BackwardBlock<Number> block;
  block.rows = batch;
  block.units = count;
  block.idle = s.idle;
  block.surrogate = surrogate_;
  block.before = {(t == 0 ? tape.before : tape.after[at(t - 1)]) + from, field_row, hidden};
  block.after = {tape.after[at(t)] + from, field_row, hidden};
  block.saved = {saved + from, shape_.saved * hidden, hidden};
  block.parameters = {unit_parameters_.data() + from, 0, hidden};
  if (shape_.spikes) block.spikes_before = {s.spikes + from, hidden};
  if (s.listed != nullptr) block.listed = {s.listed + from, hidden};
  block.output = {output + from, row, 0};
  block.adjoint = {adjoint + from, field_row, hidden};
  block.sums = {sums + from, shape_.sums * hidden, hidden};
  block.of_parameters = {of_units_.data() + from, 0, hidden};
  block.constants = constants_;
  loops_.backward(block);
}

template <class Number>
void Layer<Number>::add_bias_gradients(Workers& workers, std::int64_t rows, const Number* d,
                                       Number* gradient) const {
  const std::int64_t hidden = options_.hidden;
  workers.split(hidden, kEventWidth, [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t unit = from; unit < to; unit += kBiases) {
      const std::int64_t here = std::min(kBiases, to - unit);
      std::array<std::array<Number, kBiases>, kMostOfUnit> found{};
      for (std::int64_t r = 0; r < rows; ++r) {
        for (int sum = 0; sum < shape_.sums; ++sum) {
          const Number* const own = d + (r * shape_.sums + sum) * hidden + unit;
          for (std::int64_t u = 0; u < here; ++u) found[at(sum)][at(u)] += own[u];
        }
      }
      for (const bool recurrent : {false, true}) {
        const ParameterShape* const bias = find(recurrent ? "bias_hh" : "bias_ih");
        if (bias == nullptr) continue;
        for (int gate = 0; gate < shape_.gates; ++gate) {
          const int sum = gate == shape_.gates - 1 ? connection(recurrent).last_sum : gate;
          Number* const own = gradient + bias->offset + gate * hidden + unit;
          for (std::int64_t u = 0; u < here; ++u) own[u] += found[at(sum)][at(u)];
        }
      }
    }
  });
}

template <class Number>
void Layer<Number>::add_gradients(Workers& workers, const LayerTape<Number>& tape,
                                  const ReverseScratch& s, Number* gradient) {
  const std::int64_t batch = place_.batch, hidden = options_.hidden;
  const std::int64_t rows = tape.steps * batch;
  const Number* const d = in_place() ? tape.saved : s.of_sums;
  connections_[0].gradient(workers, tape.inputs, batch, d, s.products,
                           gradient + find("weight_ih")->offset);
  if (has_recurrent()) {
    const std::span<Rows<Number>> own(own_rows_.data(), at(tape.steps));
    for (std::int64_t t = 0; t < tape.steps; ++t) {
      if (shape_.spikes) {
        own[at(t)] = {nullptr, tape.bits[at(t)], words_of(hidden), 1};
      } else {
        own[at(t)] = {t == 0 ? tape.before : tape.after[at(t - 1)], nullptr, shape_.fields * hidden,
                      1};
      }
    }
    connections_[1].gradient(workers, own, batch, d, s.products,
                             gradient + find("weight_hh")->offset);
  }
  add_bias_gradients(workers, rows, d, gradient);
  if (tape.of_inputs == nullptr) return;
  std::fill_n(tape.of_inputs, rows * options_.input, Number{0});
  const Connection<Number>& inputs = connections_[0];
  workers.split_by_thread(
      options_.input, inputs.grain(), [&](int thread, std::int64_t from, std::int64_t to) {
        inputs.backward(rows, from, to, d, tape.of_inputs, options_.input, nullptr,
                        s.products + thread * inputs.backward_bytes(workers.size()));
      });
}

template <class Number>
void Layer<Number>::reverse(Workers& workers, const LayerTape<Number>& tape,
                            const std::int64_t* lengths, Number* adjoint, Number* of_spikes,
                            Number* gradient, std::byte* scratch) {
  Bytes used = 0;
  const ReverseScratch s = reverse_scratch(scratch, workers.size(), &used);
  const std::int64_t batch = place_.batch, hidden = options_.hidden;
  Number* const output = shape_.spikes ? of_spikes : adjoint;
  // What pointwise(t) needs of the units at t, and the product behind it of those at t - 1.
  const auto look = [&](std::int64_t t) {
    if (!is_masked_ || t < 0) return;
    workers.split(batch, 1,
                  [&](std::int64_t from, std::int64_t to) { mark(from, to, tape, t, s); });
  };
  look(tape.steps - 1);
  for (std::int64_t t = tape.steps - 1; t >= 0; --t) {
    for (std::int64_t b = 0; b < batch; ++b) {
      s.idle[b] = lengths != nullptr && tape.first + t >= lengths[b] ? 1 : 0;
    }
    if (shape_.spikes) {
      workers.split(batch, 1, [&](std::int64_t from, std::int64_t to) {
        for (std::int64_t b = from; b < to; ++b) {
          unpack_bits(tape.bits[at(t)] + b * words_of(hidden), hidden, s.spikes + b * hidden);
        }
      });
    }
    const Number* const given = tape.of_outputs->at(t);
    workers.split(hidden, grain(), [&](std::int64_t from, std::int64_t to) {
      pointwise(from, to, tape, t, s, given, adjoint, output);
    });
    look(t - 1);
    if (!has_recurrent()) continue;
    const Number* const d = in_place() ? tape.saved + t * batch * shape_.saved * hidden
                                       : s.of_sums + t * batch * shape_.sums * hidden;
    const Lists* const wanted = is_masked_ && t > 0 ? &s.wanted : nullptr;
    const Connection<Number>& own = connections_[1];
    workers.split_by_thread(
        hidden, own.grain(), [&](int thread, std::int64_t from, std::int64_t to) {
          own.backward(batch, from, to, d, output, output_row(), wanted,
                       s.products + thread * own.backward_bytes(workers.size()));
        });
  }
  add_gradients(workers, tape, s, gradient);
}

template Bytes Layer<float>::reverse_bytes(int) const;
template Bytes Layer<double>::reverse_bytes(int) const;
template void Layer<float>::reverse(Workers&, const LayerTape<float>&, const std::int64_t*, float*,
                                    float*, float*, std::byte*);
template void Layer<double>::reverse(Workers&, const LayerTape<double>&, const std::int64_t*,
                                     double*, double*, double*, std::byte*);

}  // namespace ebb
