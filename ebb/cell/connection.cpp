// SPDX-License-Identifier: Apache-2.0
#include "ebb/cell/connection.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "ebb/core/at.h"
#include "ebb/core/zeros.h"
#include "ebb/device/packed.h"

namespace ebb {
namespace {

// Entries that an input has in a group of blocks of a sparse connection: enough for going there.
constexpr double kOfGroup = 16;
constexpr std::int64_t kMostOfGroup = std::numeric_limits<std::uint16_t>::max();
constexpr const char* kLaidOut = "weights laid out for products";

// Where the wanted inputs in [from,to) of sample b are.
std::span<const std::uint16_t> wanted_in(const Lists& wanted, std::int64_t b, std::int64_t from,
                                         std::int64_t to) {
  const std::uint16_t* const all = wanted.units + b * wanted.width;
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
    const double of_block =  // entries that an input has in a block, on average
        static_cast<double>(pattern_weights_ * kEventWidth) /
        static_cast<double>(std::max<std::int64_t>(gates * units * inputs, 1));
    together_ = std::clamp<std::int64_t>(
        static_cast<std::int64_t>(std::ceil(kOfGroup / std::max(of_block, 1e-9))), 1,
        std::min(blocks(), kMostOfGroup / kEventWidth));
    starts_.reserve(at(gates * blocks() * inputs + 1));
    for (std::int64_t gate = 0; gate < gates; ++gate) {
      for (std::int64_t block = 0; block < blocks(); block += together_) {
        add_group(*pattern, gate, block);
      }
    }
    starts_.push_back(static_cast<std::uint32_t>(entries_.size()));
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
void Connection<Number>::add_group(const Pattern& pattern, std::int64_t gate, std::int64_t block) {
  const std::int64_t first = block * kEventWidth;
  const std::int64_t last = std::min(shape_.units, first + group_blocks(block) * kEventWidth);
  struct Entry {
    std::int64_t unit;
    std::uint32_t weight;
  };
  std::vector<std::vector<Entry>> of_input(at(shape_.inputs));
  for (std::int64_t u = first; u < last; ++u) {
    const std::size_t row = at(gate * shape_.units + u);
    for (std::int64_t e = pattern.starts[row]; e < pattern.starts[row + 1]; ++e) {
      of_input[at(pattern.columns[at(e)])].push_back({u - first, static_cast<std::uint32_t>(e)});
    }
  }
  for (const std::vector<Entry>& entries : of_input) {
    auto next = entries.begin();
    for (std::int64_t end = kEventWidth; end <= group_blocks(block) * kEventWidth;
         end += kEventWidth) {
      starts_.push_back(static_cast<std::uint32_t>(entries_.size()));
      for (; next != entries.end() && next->unit < end; ++next) {
        units_.push_back(static_cast<std::uint16_t>(next->unit));
        entries_.push_back(next->weight);
      }
    }
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
                                   units_.size() * sizeof(units_[0]) +
                                   entries_.size() * sizeof(entries_[0]));
}

template <class Number>
std::int64_t Connection<Number>::grain() const {
  return hears() ? kEventWidth : panel_widths<Number>().cut;
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
    for (std::size_t e = 0; e < entries_.size(); ++e) values_[e] = weights[entries_[e]];
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
                                 const Events<Number>& events, Number* sums) const {
  const std::int64_t row = shape_.sums * kEventWidth, inputs = shape_.inputs;
  for (std::int64_t gate = 0; gate < shape_.gates; ++gate) {
    Number* const own = sums + sum_of(gate) * kEventWidth;
    const Number* const start =
        gate < shape_.begun ? nullptr : biases + sum_of(gate) * shape_.units + unit;
    if (!hears()) {
      const Packed place = packed_at(gate, unit, inputs, shape_.units);
      const std::int64_t from = unit % kEventWidth;
      packed_product<Number>(samples, {from, from + count, place.columns}, inputs,
                             {rows.values, rows.stride, false}, packed_.data() + place.at,
                             {own, row, start});
      continue;
    }
    if (start != nullptr) {
      for (std::int64_t b = 0; b < samples; ++b) std::copy_n(start, count, own + b * row);
    }
    const std::int64_t block = unit / kEventWidth;
    for (std::int64_t i = 0; i < events.lists(); ++i) {
      const EventList<Number> list = events.of(i);
      Number* const of_rows = own + list.first_row * row;
      if (is_sparse_) {
        sparse_forward(gate, block, list, of_rows, row);
      } else {
        add_weights(list, panels_.data() + panel(gate, block) + list.first * kEventWidth, of_rows,
                    row);
      }
    }
  }
}

template <class Number>
void Connection<Number>::sparse_forward(std::int64_t gate, std::int64_t block,
                                        const EventList<Number>& events, Number* sums,
                                        std::int64_t row) const {
  const std::int64_t before = block % together_ * kEventWidth, stride = group_blocks(block);
  const std::uint32_t* const of_inputs = starts(gate, block);
  for (std::int64_t i = 0; i < events.inputs; ++i) {
    const std::uint32_t* const begins = of_inputs + (events.first + i) * stride;
    for (std::uint32_t event = events.starts[i]; event < events.starts[i + 1]; ++event) {
      const Number value = events.value(event);
      Number* const own = sums + events.rows[event] * row;
      for (std::uint32_t e = begins[0]; e < begins[1]; ++e) {
        own[units_[e] - before] += value * values_[e];
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
Bytes Connection<Number>::backward_bytes(int threads) const {
  if (!is_sparse_) return 0;
  const std::int64_t pieces = (shape_.inputs + kEventWidth - 1) / kEventWidth;
  const std::int64_t inputs = (pieces + threads - 1) / threads * kEventWidth;
  return (together_ * kEventWidth + inputs) * kWide * static_cast<Bytes>(sizeof(Number));
}

// Samples lie beside each other here, so that one weight is used for many of them at once, and the
// units of a group of blocks, so that a near cache holds them.
template <class Number>
void Connection<Number>::sparse_backward(std::int64_t samples, std::int64_t from, std::int64_t to,
                                         const Number* d, Number* results, std::int64_t stride,
                                         std::byte* scratch) const {
  const std::int64_t together = samples <= kNarrow ? kNarrow : kWide, row = d_row();
  auto* const turned = reinterpret_cast<Number*>(scratch);
  Number* const sums = turned + together_ * kEventWidth * together;
  for (std::int64_t first = 0; first < samples; first += together) {
    const std::int64_t here = std::min(together, samples - first);
    std::fill_n(sums, (to - from) * together, Number{0});
    for (std::int64_t gate = 0; gate < shape_.gates; ++gate) {
      for (std::int64_t block = 0; block < blocks(); block += together_) {
        const std::int64_t unit = block * kEventWidth;
        const std::int64_t units = std::min(shape_.units - unit, group_blocks(block) * kEventWidth);
        const Number* const own = d + first * row + sum_of(gate) * shape_.units + unit;
        if (here < together) std::fill_n(turned, units * together, Number{0});
        for (std::int64_t b = 0; b < here; ++b) {
          for (std::int64_t u = 0; u < units; ++u) turned[u * together + b] = own[b * row + u];
        }
        add_sparse_product<Number>(to - from,
                                   {starts(gate, block) + from * group_blocks(block),
                                    group_blocks(block), units_.data(), values_.data()},
                                   together, turned, sums);
      }
    }
    for (std::int64_t b = 0; b < here; ++b) {
      Number* const own = results + (first + b) * stride;
      for (std::int64_t j = from; j < to; ++j) own[j] += sums[(j - from) * together + b];
    }
  }
}

template <class Number>
void Connection<Number>::backward(std::int64_t samples, std::int64_t from, std::int64_t to,
                                  const Number* d, Number* results, std::int64_t stride,
                                  const Lists* wanted, std::byte* scratch) const {
  const std::int64_t units = shape_.units, row = d_row();
  if (is_sparse_) {
    sparse_backward(samples, from, to, d, results, stride, scratch);
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
  std::array<Number, kEventWidth> room;
  for (std::int64_t gate = 0; gate < shape_.gates; ++gate) {
    // A block's weights stay in a cache while all samples use them.
    for (std::int64_t block = 0; block < blocks(); ++block) {
      for (std::int64_t b = 0; b < samples; ++b) {
        const std::span<const std::uint16_t> own = wanted_in(*wanted, b, from, to);
        dot_rows(static_cast<std::int64_t>(own.size()), own.data(),
                 panels_.data() + panel(gate, block), whole_block(gate, block, d + b * row, room),
                 results + b * stride);
      }
    }
  }
}

template class Connection<float>;
template class Connection<double>;

}  // namespace ebb
