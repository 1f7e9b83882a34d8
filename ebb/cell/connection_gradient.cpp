// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "ebb/cell/connection.h"
#include "ebb/core/at.h"
#include "ebb/core/carver.h"
#include "ebb/device/packed.h"

namespace ebb {
namespace {

// Inputs that are laid out for a product at a time: memory for more would be missing for states.
constexpr std::int64_t kColumns = 6 * kEventWidth;

}  // namespace

template <class Number>
void Connection<Number>::begin() {
  std::fill(of_panels_.begin(), of_panels_.end(), Number{0});
  std::fill(of_entries_.begin(), of_entries_.end(), Number{0});
}

template <class Number>
typename Connection<Number>::GradientScratch Connection<Number>::gradient_scratch(
    std::byte* scratch, std::int64_t rows, int threads, Bytes* used) const {
  Carver carver(scratch);
  GradientScratch s;
  if (lists()) {
    s.active = {carver.take<std::uint16_t>(threads * shape_.inputs),
                carver.take<Number>(threads * shape_.inputs), nullptr, shape_.inputs};
  } else {
    s.inputs = carver.take<Number>(packed_size<Number>(rows, std::min(shape_.inputs, kColumns)));
    s.block = carver.take<Number>(std::min<std::int64_t>(threads, shape_.gates * blocks()) *
                                  std::min(kEventWidth, shape_.units) * rows);
  }
  *used = carver.used();
  return s;
}

template <class Number>
Bytes Connection<Number>::gradient_bytes(std::int64_t rows, int threads) const {
  Bytes used = 0;
  gradient_scratch(nullptr, rows, threads, &used);
  return used;
}

template <class Number>
void Connection<Number>::gradient(Workers& workers, std::span<const Rows<Number>> rows,
                                  std::int64_t samples, const Number* d, std::byte* scratch,
                                  Number* gradient) {
  Bytes used = 0;
  const GradientScratch s = gradient_scratch(
      scratch, static_cast<std::int64_t>(rows.size()) * samples, workers.size(), &used);
  if (lists()) {
    event_gradient(workers, rows, samples, d, s);
  } else {
    plain_gradient(workers, rows, samples, d, s, gradient);
  }
}

// The product of the gradients of the sums, turned, with some columns of the inputs at a time. Those
// of a block are copied together: in place their rows lie so far apart that caches cannot hold them.
template <class Number>
void Connection<Number>::plain_gradient(Workers& workers, std::span<const Rows<Number>> rows,
                                        std::int64_t samples, const Number* d,
                                        const GradientScratch& s, Number* gradient) const {
  const std::int64_t units = shape_.units, inputs = shape_.inputs;
  const std::int64_t all = static_cast<std::int64_t>(rows.size()) * samples;
  const std::int64_t width = packed_width<Number>();
  for (std::int64_t column = 0; column < inputs; column += kColumns) {
    const std::int64_t columns = std::min(kColumns, inputs - column);
    workers.split(columns, width, [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t j = from; j < to; j += width) {
        const std::int64_t wide = panel_width<Number>(to - j);
        for (std::size_t t = 0; t < rows.size(); ++t) {
          pack(samples, std::min(width, to - j), rows[t].values + column + j, rows[t].stride, 1,
               s.inputs + j * all + static_cast<std::int64_t>(t) * samples * wide);
        }
      }
    });
    const auto work = [&](int thread, std::int64_t from, std::int64_t to) {
      // Threads without a piece have no room: a thread's piece comes no later than itself.
      Number* const block =
          s.block + std::min<std::int64_t>(thread, from) * std::min(kEventWidth, units) * all;
      for (std::int64_t piece = from; piece < to; ++piece) {
        const std::int64_t gate = piece / blocks(), first = piece % blocks() * kEventWidth;
        const std::int64_t here = std::min(kEventWidth, units - first);
        const Number* const own = d + sum_of(gate) * units + first;
        for (std::int64_t r = 0; r < all; ++r) {
          // A length that the compiler knows: some vectors instead of a call.
          if (here == kEventWidth) {
            std::copy_n(own + r * d_row(), kEventWidth, block + r * kEventWidth);
          } else {
            std::copy_n(own + r * d_row(), here, block + r * here);
          }
        }
        packed_product<Number>(
            here, {0, columns, columns}, all, {block, here, true}, s.inputs,
            {gradient + (gate * units + first) * inputs + column, inputs, nullptr});
      }
    };
    workers.split_by_thread(shape_.gates * blocks(), 1, work);
  }
}

template <class Number>
void Connection<Number>::add_events(std::int64_t gate, std::int64_t block,
                                    std::span<const std::uint16_t> active, const Number* values,
                                    const Number* d) {
  std::array<Number, kEventWidth> room;
  const Number* const own = whole_block(gate, block, d, room);
  if (!is_sparse_) {
    add_to_rows(static_cast<std::int64_t>(active.size()), active.data(), values, own,
                of_panels_.data() + panel(gate, block));
    return;
  }
  const std::uint32_t* const begins = starts(gate, block);
  for (std::size_t i = 0; i < active.size(); ++i) {
    const Number value = values == nullptr ? Number{1} : values[i];
    for (std::uint32_t e = begins[active[i]]; e < begins[active[i] + 1]; ++e) {
      of_entries_[e] += value * own[entries_[e].unit];
    }
  }
}

// Row by row, so that sums are in the order of time steps and samples; some blocks of units at a
// time, whose gradients stay in a cache.
template <class Number>
void Connection<Number>::event_gradient(Workers& workers, std::span<const Rows<Number>> rows,
                                        std::int64_t samples, const Number* d,
                                        const GradientScratch& s) {
  constexpr std::int64_t together = 2;
  const std::int64_t pieces = shape_.gates * blocks();
  const auto work = [&](int thread, std::int64_t from, std::int64_t to) {
    const std::int64_t width = s.active.width;
    std::int32_t count = 0;
    const Lists<Number> active{s.active.inputs + thread * width, s.active.values + thread * width,
                               &count, 0};
    for (std::int64_t piece = from; piece < to; piece += together) {
      const std::int64_t end = std::min(piece + together, to);
      for (std::size_t t = 0; t < rows.size(); ++t) {
        const Number* const own = d + static_cast<std::int64_t>(t) * samples * d_row();
        const bool ones = rows[t].bits != nullptr && rows[t].scale == Number{1};
        for (std::int64_t b = 0; b < samples; ++b) {
          Rows<Number> row = rows[t];
          if (row.bits != nullptr) row.bits += b * row.stride;
          if (row.values != nullptr) row.values += b * row.stride;
          list_rows(row, 0, 1, shape_.inputs, false, active);
          const std::span<const std::uint16_t> list(active.inputs, at(count));
          for (std::int64_t p = piece; p < end; ++p) {
            add_events(p / blocks(), p % blocks(), list, ones ? nullptr : active.values,
                       own + b * d_row());
          }
        }
      }
    }
  };
  workers.split_by_thread(pieces, 1, work);
}

template <class Number>
void Connection<Number>::finish(Workers& workers, Number* gradient) {
  for (std::size_t e = 0; e < of_entries_.size(); ++e) {
    gradient[entries_[e].weight] += of_entries_[e];
  }
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

template void Connection<float>::begin();
template void Connection<double>::begin();
template Bytes Connection<float>::gradient_bytes(std::int64_t, int) const;
template Bytes Connection<double>::gradient_bytes(std::int64_t, int) const;
template void Connection<float>::gradient(Workers&, std::span<const Rows<float>>, std::int64_t,
                                          const float*, std::byte*, float*);
template void Connection<double>::gradient(Workers&, std::span<const Rows<double>>, std::int64_t,
                                           const double*, std::byte*, double*);
template void Connection<float>::finish(Workers&, float*);
template void Connection<double>::finish(Workers&, double*);

}  // namespace ebb
