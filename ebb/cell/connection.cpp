// SPDX-License-Identifier: Apache-2.0
#include "ebb/cell/connection.h"

#include <algorithm>
#include <array>

#include "ebb/core/at.h"
#include "ebb/core/zeros.h"
#include "ebb/device/packed.h"

namespace ebb {
namespace {

// Samples that use a sparse weight at once: a few, or many where there are as many.
constexpr std::int64_t kFew = 8, kMany = 32;
constexpr const char* kLaidOut = "weights laid out for products";

// Where the wanted inputs in [from,to) of sample b are.
template <class Number>
std::span<const std::uint16_t> wanted_in(const Lists<Number>& wanted, std::int64_t b,
                                         std::int64_t from, std::int64_t to) {
  const std::uint16_t* const all = wanted.inputs + b * wanted.width;
  const std::uint16_t* const end = all + wanted.counts[b];
  const std::uint16_t* const first = std::lower_bound(all, end, from);
  return {first, std::lower_bound(first, end, to)};
}

}  // namespace

template <class Number>
Connection<Number>::Connection(const ConnectionShape& shape, const Pattern* pattern)
    : shape_(shape), is_sparse_(pattern != nullptr) {
  const std::int64_t gates = shape_.gates, units = shape_.units, inputs = shape_.inputs;
  if (pattern != nullptr) {
    pattern_weights_ = static_cast<std::int64_t>(pattern->columns.size());
    starts_.reserve(at(gates * blocks() * (inputs + 1)));
    for (std::int64_t gate = 0; gate < gates; ++gate) {
      for (std::int64_t block = 0; block < blocks(); ++block) {
        std::vector<std::vector<SparseWeight>> of_input(at(inputs));
        const std::int64_t first = block * kEventWidth, last = std::min(units, first + kEventWidth);
        for (std::int64_t u = first; u < last; ++u) {
          const std::size_t row = at(gate * units + u);
          for (std::int64_t e = pattern->starts[row]; e < pattern->starts[row + 1]; ++e) {
            of_input[at(pattern->columns[at(e)])].push_back(
                {static_cast<std::uint8_t>(u - first), static_cast<std::uint32_t>(e)});
          }
        }
        for (const std::vector<SparseWeight>& entries : of_input) {
          starts_.push_back(static_cast<std::uint32_t>(entries_.size()));
          entries_.insert(entries_.end(), entries.begin(), entries.end());
        }
        starts_.push_back(static_cast<std::uint32_t>(entries_.size()));
      }
    }
    values_.resize(entries_.size());
    of_entries_.resize(entries_.size());
    return;
  }
  if (shape_.events) {
    panels_ = aligned_zeros<Number>(at(gates * blocks() * inputs * kEventWidth), kLaidOut);
    of_panels_ = aligned_zeros<Number>(panels_.size(), "the gradient of weights");
  } else {
    packed_ = aligned_zeros<Number>(at(gates * packed_size<Number>(inputs, units)), kLaidOut);
  }
  if (shape_.wants_backward) {
    packed_back_ = aligned_zeros<Number>(at(gates * packed_size<Number>(units, inputs)), kLaidOut);
  }
}

template <class Number>
std::int64_t Connection<Number>::weights() const {
  return is_sparse_ ? pattern_weights_ : shape_.gates * shape_.units * shape_.inputs;
}

template <class Number>
std::int64_t Connection<Number>::prepared_bytes() const {
  const std::size_t numbers =
      packed_.size() + packed_back_.size() + 2 * panels_.size() + 2 * values_.size();
  return static_cast<std::int64_t>(numbers * sizeof(Number) + starts_.size() * sizeof(starts_[0]) +
                                   entries_.size() * sizeof(SparseWeight));
}

template <class Number>
std::int64_t Connection<Number>::grain() const {
  return lists() ? kEventWidth : panel_widths<Number>().cut;
}

template <class Number>
typename Connection<Number>::Packed Connection<Number>::packed_at(std::int64_t gate,
                                                                  std::int64_t column,
                                                                  std::int64_t rows,
                                                                  std::int64_t columns) const {
  const std::int64_t first = column / kEventWidth * kEventWidth;
  const std::int64_t here = std::min(kEventWidth, columns - first);
  return {shape_.gates * rows * first + gate * packed_size<Number>(rows, here), here};
}

template <class Number>
void Connection<Number>::prepare(Workers& workers, const Number* weights) {
  if (is_sparse_) {
    for (std::size_t e = 0; e < entries_.size(); ++e) values_[e] = weights[entries_[e].weight];
    return;
  }
  const std::int64_t units = shape_.units, inputs = shape_.inputs;
  for (std::int64_t gate = 0; gate < shape_.gates; ++gate) {
    const Number* const own = weights + gate * units * inputs;
    if (!packed_.empty()) {
      workers.split(units, kEventWidth, [&](std::int64_t from, std::int64_t to) {
        for (std::int64_t unit = from; unit < to; unit += kEventWidth) {
          const Packed place = packed_at(gate, unit, inputs, units);
          pack(inputs, place.columns, own + unit * inputs, 1, inputs, packed_.data() + place.at);
        }
      });
    }
    if (!packed_back_.empty()) {
      workers.split(inputs, kEventWidth, [&](std::int64_t from, std::int64_t to) {
        for (std::int64_t input = from; input < to; input += kEventWidth) {
          const Packed place = packed_at(gate, input, units, inputs);
          pack(units, place.columns, own + input, inputs, 1, packed_back_.data() + place.at);
        }
      });
    }
    if (!panels_.empty()) {
      workers.split(blocks(), 1, [&](std::int64_t from, std::int64_t to) {
        for (std::int64_t block = from; block < to; ++block) {
          Number* const rows = panels_.data() + panel(gate, block);
          const std::int64_t first = block * kEventWidth;
          const std::int64_t here = std::min(kEventWidth, units - first);
          for (std::int64_t u = 0; u < here; ++u) {
            const Number* const row = own + (first + u) * inputs;
            for (std::int64_t j = 0; j < inputs; ++j) rows[j * kEventWidth + u] = row[j];
          }
        }
      });
    }
  }
}

template <class Number>
void Connection<Number>::forward(std::int64_t samples, std::int64_t unit, std::int64_t count,
                                 const Number* biases, const Rows<Number>& rows,
                                 const Lists<Number>& lists, Number* sums) const {
  const std::int64_t row = shape_.sums * kEventWidth, inputs = shape_.inputs;
  for (std::int64_t gate = 0; gate < shape_.gates; ++gate) {
    Number* const own = sums + sum_of(gate) * kEventWidth;
    const Number* const start =
        gate < shape_.begun ? nullptr : biases + sum_of(gate) * shape_.units + unit;
    if (!lists.inputs) {
      const Packed place = packed_at(gate, unit, inputs, shape_.units);
      const std::int64_t from = unit % kEventWidth;
      packed_product<Number>(samples, {from, from + count, place.columns}, inputs,
                             {rows.values, rows.stride, false}, packed_.data() + place.at,
                             {own, row, start});
      continue;
    }
    const std::int64_t block = unit / kEventWidth;
    for (std::int64_t b = 0; b < samples; ++b) {
      const std::uint16_t* const list = lists.inputs + b * lists.width;
      const Number* const values =
          lists.values == nullptr ? nullptr : lists.values + b * lists.width;
      if (start != nullptr) std::copy_n(start, count, own + b * row);
      if (!is_sparse_) {
        add_rows(lists.counts[b], list, values, panels_.data() + panel(gate, block), own + b * row);
        continue;
      }
      const std::uint32_t* const begins = starts(gate, block);
      for (std::int32_t i = 0; i < lists.counts[b]; ++i) {
        const Number value = values == nullptr ? Number{1} : values[i];
        for (std::uint32_t e = begins[list[i]]; e < begins[list[i] + 1]; ++e) {
          own[b * row + entries_[e].unit] += value * values_[e];
        }
      }
    }
  }
}

template <class Number>
const Number* Connection<Number>::whole_block(std::int64_t gate, std::int64_t block,
                                              const Number* d,
                                              std::array<Number, kEventWidth>& room) const {
  const std::int64_t first = block * kEventWidth;
  const Number* const own = d + sum_of(gate) * shape_.units + first;
  const std::int64_t here = shape_.units - first;
  if (here >= kEventWidth) return own;
  std::fill(std::copy_n(own, here, room.begin()), room.end(), Number{0});
  return room.data();
}

template <class Number>
void Connection<Number>::dots(std::int64_t gate, std::int64_t block,
                              std::span<const std::uint16_t> wanted, const Number* d,
                              Number* results) const {
  std::array<Number, kEventWidth> room;
  const Number* const own = whole_block(gate, block, d, room);
  if (!is_sparse_) {
    dot_rows(static_cast<std::int64_t>(wanted.size()), wanted.data(),
             panels_.data() + panel(gate, block), own, results);
    return;
  }
  const std::uint32_t* const begins = starts(gate, block);
  for (const std::uint16_t j : wanted) {
    Number sum = 0;
    for (std::uint32_t e = begins[j]; e < begins[j + 1]; ++e) {
      sum += values_[e] * own[entries_[e].unit];
    }
    results[j] += sum;
  }
}

template <class Number>
Bytes Connection<Number>::backward_bytes() const {
  return is_sparse_ ? d_row() * kMany * static_cast<Bytes>(sizeof(Number)) : 0;
}

// Samples lie beside each other here, so that one weight is used for many of them at once.
template <class Number>
template <std::int64_t together>
void Connection<Number>::sparse_backward(std::int64_t samples, std::int64_t from, std::int64_t to,
                                         const Number* d, Number* results, std::int64_t stride,
                                         Number* turned) const {
  const std::int64_t row = d_row();
  for (std::int64_t first = 0; first < samples; first += together) {
    const std::int64_t here = std::min(together, samples - first);
    std::fill_n(turned, row * together, Number{0});
    for (std::int64_t b = 0; b < here; ++b) {
      const Number* const own = d + (first + b) * row;
      for (std::int64_t u = 0; u < row; ++u) turned[u * together + b] = own[u];
    }
    for (std::int64_t j = from; j < to; ++j) {
      std::array<Number, together> sums{};
      for (std::int64_t piece = 0; piece < shape_.gates * blocks(); ++piece) {
        const std::uint32_t* const starts = starts_.data() + piece * (shape_.inputs + 1) + j;
        const std::int64_t block =
            sum_of(piece / blocks()) * shape_.units + piece % blocks() * kEventWidth;
        for (std::uint32_t e = starts[0]; e < starts[1]; ++e) {
          const Number value = values_[e];
          const Number* const own = turned + (block + entries_[e].unit) * together;
          for (std::int64_t b = 0; b < together; ++b) sums[at(b)] += value * own[b];
        }
      }
      for (std::int64_t b = 0; b < here; ++b) results[(first + b) * stride + j] += sums[at(b)];
    }
  }
}

template <class Number>
void Connection<Number>::backward(std::int64_t samples, std::int64_t from, std::int64_t to,
                                  const Number* d, Number* results, std::int64_t stride,
                                  const Lists<Number>* wanted, std::byte* scratch) const {
  const std::int64_t units = shape_.units, row = d_row();
  if (wanted == nullptr && is_sparse_) {
    auto* const turned = reinterpret_cast<Number*>(scratch);
    if (samples <= kFew) {
      sparse_backward<kFew>(samples, from, to, d, results, stride, turned);
    } else {
      sparse_backward<kMany>(samples, from, to, d, results, stride, turned);
    }
    return;
  }
  if (wanted == nullptr) {
    for (std::int64_t input = from; input < to;) {
      const std::int64_t first = input % kEventWidth;
      const std::int64_t last = std::min(kEventWidth, first + to - input);
      for (std::int64_t gate = 0; gate < shape_.gates; ++gate) {
        const Packed place = packed_at(gate, input, units, shape_.inputs);
        packed_product<Number>(samples, {first, last, place.columns}, units,
                               {d + sum_of(gate) * units, row, false},
                               packed_back_.data() + place.at, {results + input, stride, nullptr});
      }
      input += last - first;
    }
    return;
  }
  for (std::int64_t gate = 0; gate < shape_.gates; ++gate) {
    // A block's weights stay in a cache while all samples use them.
    for (std::int64_t block = 0; block < blocks(); ++block) {
      for (std::int64_t b = 0; b < samples; ++b) {
        dots(gate, block, wanted_in(*wanted, b, from, to), d + b * row, results + b * stride);
      }
    }
  }
}

template class Connection<float>;
template class Connection<double>;

}  // namespace ebb
