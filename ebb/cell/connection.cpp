// SPDX-License-Identifier: Apache-2.0
#include "ebb/cell/connection.h"

#include <algorithm>
#include <array>

#include "ebb/core/at.h"
#include "ebb/device/matmul.h"
#include "ebb/device/packed.h"

namespace ebb {

template <class Number>
Connection<Number>::Connection(const ConnectionShape& shape, const Pattern* pattern)
    : shape_(shape), is_sparse_(pattern != nullptr) {
  const std::int64_t gates = shape_.gates, units = shape_.units, inputs = shape_.inputs;
  if (is_sparse_) {
    pattern_weights_ = static_cast<std::int64_t>(pattern->columns.size());
    starts_.reserve(at(gates * blocks() * (inputs + 1)));
    for (std::int64_t gate = 0; gate < gates; ++gate) {
      for (std::int64_t block = 0; block < blocks(); ++block) {
        std::vector<std::vector<Entry>> of_input(at(inputs));
        const std::int64_t first = block * kEventWidth, last = std::min(units, first + kEventWidth);
        for (std::int64_t u = first; u < last; ++u) {
          const std::size_t row = at(gate * units + u);
          for (std::int64_t e = pattern->starts[row]; e < pattern->starts[row + 1]; ++e) {
            of_input[at(pattern->columns[at(e)])].push_back(
                {static_cast<std::uint8_t>(u - first), static_cast<std::uint32_t>(e)});
          }
        }
        for (const std::vector<Entry>& entries : of_input) {
          starts_.push_back(static_cast<std::uint32_t>(entries_.size()));
          entries_.insert(entries_.end(), entries.begin(), entries.end());
        }
        starts_.push_back(static_cast<std::uint32_t>(entries_.size()));
      }
    }
    values_.resize(entries_.size());
    return;
  }
  if (shape_.events) {
    panels_.resize(at(gates * blocks() * inputs * kEventWidth));
    of_panels_.resize(panels_.size());
  } else {
    packed_.resize(at(gates * packed_size<Number>(inputs, units)));
  }
  if (shape_.wants_backward) {
    packed_back_.resize(at(gates * packed_size<Number>(units, inputs)));
  }
}

template <class Number>
std::int64_t Connection<Number>::weights() const {
  return is_sparse_ ? pattern_weights_ : shape_.gates * shape_.units * shape_.inputs;
}

template <class Number>
std::int64_t Connection<Number>::prepared_bytes() const {
  const std::size_t numbers =
      packed_.size() + packed_back_.size() + panels_.size() + of_panels_.size() + values_.size();
  return static_cast<std::int64_t>(numbers * sizeof(Number) + starts_.size() * sizeof(starts_[0]) +
                                   entries_.size() * sizeof(Entry));
}

template <class Number>
std::int64_t Connection<Number>::grain() const {
  return lists() ? kEventWidth : packed_width<Number>();
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
      Number* const packed = packed_.data() + gate * packed_size<Number>(inputs, units);
      workers.split(units, packed_width<Number>(), [&](std::int64_t from, std::int64_t to) {
        pack(inputs, to - from, own + from * inputs, 1, inputs, packed + from * inputs);
      });
    }
    if (!packed_back_.empty()) {
      Number* const packed = packed_back_.data() + gate * packed_size<Number>(units, inputs);
      workers.split(inputs, packed_width<Number>(), [&](std::int64_t from, std::int64_t to) {
        pack(units, to - from, own + from, inputs, 1, packed + from * units);
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
void Connection<Number>::begin() {
  std::fill(of_panels_.begin(), of_panels_.end(), Number{0});
}

template <class Number>
void Connection<Number>::forward(std::int64_t samples, std::int64_t unit, std::int64_t count,
                                 const Rows<Number>& rows, const Lists<Number>& lists,
                                 Number* sums) const {
  const std::int64_t row = shape_.sums * kEventWidth, inputs = shape_.inputs;
  for (std::int64_t gate = 0; gate < shape_.gates; ++gate) {
    Number* const own = sums + sum_of(gate) * kEventWidth;
    if (!lists.inputs) {
      packed_product(
          samples, count, inputs, rows.values, rows.stride,
          packed_.data() + gate * packed_size<Number>(inputs, shape_.units) + unit * inputs, own,
          row);
      continue;
    }
    const std::int64_t block = unit / kEventWidth;
    const std::uint32_t* const starts =
        is_sparse_ ? starts_.data() + (gate * blocks() + block) * (inputs + 1) : nullptr;
    for (std::int64_t b = 0; b < samples; ++b) {
      const std::uint16_t* const list = lists.inputs + b * lists.width;
      const Number* const values =
          lists.values == nullptr ? nullptr : lists.values + b * lists.width;
      if (!is_sparse_) {
        add_rows(lists.counts[b], list, values, {panels_.data() + panel(gate, block), kEventWidth},
                 own + b * row);
        continue;
      }
      for (std::int32_t i = 0; i < lists.counts[b]; ++i) {
        const Number value = values == nullptr ? Number{1} : values[i];
        for (std::uint32_t e = starts[list[i]]; e < starts[list[i] + 1]; ++e) {
          own[b * row + entries_[e].unit] += value * values_[e];
        }
      }
    }
  }
}

template <class Number>
void Connection<Number>::backward(std::int64_t samples, std::int64_t from, std::int64_t to,
                                  const Number* d, Number* results, std::int64_t stride,
                                  const Lists<Number>* wanted) const {
  const std::int64_t units = shape_.units, inputs = shape_.inputs, row = d_row();
  if (!packed_back_.empty() && wanted == nullptr) {
    for (std::int64_t gate = 0; gate < shape_.gates; ++gate) {
      packed_product(samples, to - from, units, d + sum_of(gate) * units, row,
                     packed_back_.data() + gate * packed_size<Number>(units, inputs) + from * units,
                     results + from, stride);
    }
    return;
  }
  std::array<std::uint16_t, kEventWidth> some{};
  for (std::int64_t b = 0; b < samples; ++b) {
    // In pieces of one block, all where nothing is listed.
    const std::uint16_t* list = nullptr;
    const std::uint16_t* end = nullptr;
    if (wanted != nullptr) {
      const std::uint16_t* const all = wanted->inputs + b * wanted->width;
      const std::uint16_t* const all_end = all + wanted->counts[b];
      list = std::lower_bound(all, all_end, from);
      end = std::lower_bound(list, all_end, to);
    }
    const auto dots = [&](std::int64_t count, const std::uint16_t* these) {
      for (std::int64_t gate = 0; gate < shape_.gates; ++gate) {
        for (std::int64_t block = 0; block < blocks(); ++block) {
          const std::int64_t first = block * kEventWidth;
          const Number* own = d + b * row + sum_of(gate) * units + first;
          if (is_sparse_) {
            const std::uint32_t* const starts =
                starts_.data() + (gate * blocks() + block) * (inputs + 1);
            for (std::int64_t i = 0; i < count; ++i) {
              Number sum = 0;
              for (std::uint32_t e = starts[these[i]]; e < starts[these[i] + 1]; ++e) {
                sum += values_[e] * own[entries_[e].unit];
              }
              results[b * stride + these[i]] += sum;
            }
            continue;
          }
          std::array<Number, kEventWidth> padded{};
          if (units - first < kEventWidth) {
            std::copy(own, own + (units - first), padded.begin());
            own = padded.data();
          }
          dot_rows(count, these, {panels_.data() + panel(gate, block), kEventWidth}, own,
                   results + b * stride);
        }
      }
    };
    if (wanted != nullptr) {
      dots(end - list, list);
      continue;
    }
    for (std::int64_t j = from; j < to; j += kEventWidth) {
      const std::int64_t here = std::min(kEventWidth, to - j);
      for (std::int64_t i = 0; i < here; ++i) some[at(i)] = static_cast<std::uint16_t>(j + i);
      dots(here, some.data());
    }
  }
}

template <class Number>
std::int64_t Connection<Number>::gradient_bytes(std::int64_t rows) const {
  return lists() ? 64 * rows * static_cast<std::int64_t>(sizeof(Number) + sizeof(std::uint16_t))
                 : 0;
}

template <class Number>
void Connection<Number>::dense_gradient(Workers& workers, std::int64_t rows, const Number* d,
                                        const Number* gathered, Number* gradient) const {
  const std::int64_t units = shape_.units, inputs = shape_.inputs, gates = shape_.gates;
  const bool apart = shape_.last_sum != gates - 1;
  const std::int64_t together = apart ? gates - 1 : gates;
  const Matrix<Number> x{gathered, inputs, false};
  matmul<Number>(workers, together * units, inputs, rows, {d, d_row(), true}, x, gradient, inputs,
                 true);
  if (apart) {
    matmul<Number>(workers, units, inputs, rows, {d + shape_.last_sum * units, d_row(), true}, x,
                   gradient + together * units * inputs, inputs, true);
  }
}

template <class Number>
void Connection<Number>::event_gradient(std::int64_t input, std::int64_t count,
                                        const std::uint16_t* rows, const Number* values,
                                        const Number* d, Number* gradient) {
  const std::int64_t units = shape_.units;
  for (std::int64_t gate = 0; gate < shape_.gates; ++gate) {
    for (std::int64_t block = 0; block < blocks(); ++block) {
      const std::int64_t first = block * kEventWidth;
      const std::int64_t here = std::min(kEventWidth, units - first);
      const Number* const own = d + sum_of(gate) * units + first;
      if (is_sparse_) {
        const std::uint32_t* const starts =
            starts_.data() + (gate * blocks() + block) * (shape_.inputs + 1) + input;
        for (std::uint32_t e = starts[0]; e < starts[1]; ++e) {
          Number sum = 0;
          for (std::int64_t i = 0; i < count; ++i) {
            sum += values[i] * own[rows[i] * d_row() + entries_[e].unit];
          }
          gradient[entries_[e].weight] += sum;
        }
        continue;
      }
      Number* const sums = of_panels_.data() + panel(gate, block) + input * kEventWidth;
      if (here == kEventWidth) {
        add_rows(count, rows, values, {own, d_row()}, sums);
        continue;
      }
      for (std::int64_t i = 0; i < count; ++i) {
        for (std::int64_t u = 0; u < here; ++u) sums[u] += values[i] * own[rows[i] * d_row() + u];
      }
    }
  }
}

template <class Number>
void Connection<Number>::gradient(Workers& workers, std::span<const Rows<Number>> rows,
                                  std::int64_t samples, const Number* d, Number* gathered,
                                  std::byte* listed, Number* gradient) {
  const auto steps = static_cast<std::int64_t>(rows.size());
  const std::int64_t inputs = shape_.inputs, all = steps * samples;
  if (!lists()) {
    workers.split(all, 1, [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t r = from; r < to; ++r) {
        const Rows<Number>& here = rows[at(r / samples)];
        std::copy_n(here.values + r % samples * here.stride, inputs, gathered + r * inputs);
      }
    });
    dense_gradient(workers, all, d, gathered, gradient);
    return;
  }
  workers.all([&](int thread) {
    // For 64 inputs at a time: in which rows each is active.
    std::byte* const mine = listed + thread * gradient_bytes(all);
    Number* const values = reinterpret_cast<Number*>(mine);
    auto* const lists =
        reinterpret_cast<std::uint16_t*>(mine + 64 * all * std::int64_t{sizeof(Number)});
    const std::int64_t words = words_of(inputs);
    const std::int64_t first = words * thread / workers.size();
    const std::int64_t last = words * (thread + 1) / workers.size();
    for (std::int64_t w = first; w < last; ++w) {
      std::array<std::int64_t, 64> counts{};
      for (std::int64_t r = 0; r < all; ++r) {
        const Rows<Number>& here = rows[at(r / samples)];
        const std::int64_t b = r % samples;
        const auto add = [&](std::int64_t i, Number value) {
          const std::int64_t n = counts[at(i)]++;
          lists[i * all + n] = static_cast<std::uint16_t>(r);
          values[i * all + n] = value;
        };
        if (here.bits != nullptr) {
          for_each_bit(here.bits[b * here.stride + w], 0,
                       [&](std::int64_t i) { add(i, here.scale); });
          continue;
        }
        const Number* const own = here.values + b * here.stride + w * 64;
        for (std::int64_t i = 0; i < std::min<std::int64_t>(64, inputs - w * 64); ++i) {
          if (own[i] != Number{0}) add(i, own[i]);
        }
      }
      for (std::int64_t i = 0; i < std::min<std::int64_t>(64, inputs - w * 64); ++i) {
        event_gradient(w * 64 + i, counts[at(i)], lists + i * all, values + i * all, d, gradient);
      }
    }
  });
}

template <class Number>
void Connection<Number>::finish(Workers& workers, Number* gradient) {
  if (of_panels_.empty()) return;
  const std::int64_t units = shape_.units, inputs = shape_.inputs;
  workers.split(shape_.gates * units, kEventWidth, [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t row = from; row < to; ++row) {
      const std::int64_t unit = row % units;
      const Number* const own = of_panels_.data() + panel(row / units, unit / kEventWidth);
      for (std::int64_t j = 0; j < inputs; ++j) {
        gradient[row * inputs + j] += own[j * kEventWidth + unit % kEventWidth];
      }
    }
  });
}

template class Connection<float>;
template class Connection<double>;

}  // namespace ebb
