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
    std::byte* scratch, std::int64_t steps, std::int64_t samples, int threads, Bytes* used) const {
  const std::int64_t rows = steps * samples;
  const auto pieces = std::min<std::int64_t>(threads, shape_.gates * blocks());
  Carver carver(scratch);
  GradientScratch s;
  if (hears()) {
    s.counts = carver.take<std::int32_t>(steps * words_of(shape_.inputs));
    s.events = events_at(carver, samples);
    s.block = carver.take<Number>(pieces * kEventWidth * rows);
  } else {
    s.inputs = carver.take<Number>(packed_size<Number>(rows, std::min(shape_.inputs, kColumns)));
    s.block = carver.take<Number>(pieces * std::min(kEventWidth, shape_.units) * rows);
  }
  *used = carver.used();
  return s;
}

template <class Number>
Bytes Connection<Number>::gradient_bytes(std::int64_t steps, std::int64_t samples,
                                         int threads) const {
  Bytes used = 0;
  gradient_scratch(nullptr, steps, samples, threads, &used);
  return used;
}

template <class Number>
void Connection<Number>::gradient(Workers& workers, std::span<const Rows<Number>> rows,
                                  std::int64_t samples, const Number* d, std::byte* scratch,
                                  Number* gradient) {
  Bytes used = 0;
  const GradientScratch s = gradient_scratch(scratch, static_cast<std::int64_t>(rows.size()),
                                             samples, workers.size(), &used);
  if (hears()) {
    event_gradient(workers, rows, samples, d, s);
  } else {
    plain_gradient(workers, rows, samples, d, s, gradient);
  }
}

template <class Number>
void Connection<Number>::copy_block(std::int64_t gate, std::int64_t block, std::int64_t rows,
                                    const Number* d, std::int64_t width, Number* to) const {
  const std::int64_t first = block * kEventWidth;
  const std::int64_t here = std::min(kEventWidth, shape_.units - first);
  const Number* const own = d + sum_of(gate) * shape_.units + first;
  for (std::int64_t r = 0; r < rows; ++r) {
    // A length that the compiler knows: some vectors instead of a call.
    if (here == kEventWidth) {
      std::copy_n(own + r * d_row(), kEventWidth, to + r * kEventWidth);
    } else {
      std::fill_n(std::copy_n(own + r * d_row(), here, to + r * width), width - here, Number{0});
    }
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
        copy_block(gate, piece % blocks(), all, d, here, block);
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
                                    const EventList<Number>& events, const Number* d) {
  if (!is_sparse_) {
    add_to_weights(events, d, of_panels_.data() + panel(gate, block) + events.first * kEventWidth);
    return;
  }
  const std::int64_t before = block % together_ * kEventWidth, stride = group_blocks(block);
  const std::uint32_t* const of_inputs = starts(gate, block);
  for (std::int64_t i = 0; i < events.inputs; ++i) {
    const std::uint32_t* const begins = of_inputs + (events.first + i) * stride;
    for (std::uint32_t event = events.starts[i]; event < events.starts[i + 1]; ++event) {
      const Number value = events.value(event);
      const Number* const own = d + events.rows[event] * kEventWidth;
      for (std::uint32_t e = begins[0]; e < begins[1]; ++e) {
        of_entries_[e] += value * own[units_[e] - before];
      }
    }
  }
}

// Each weight's sum is in the order of time steps and samples. As many time steps at once as there is
// room for their events, so that the weights of a block are gone through once for them.
template <class Number>
void Connection<Number>::event_gradient(Workers& workers, std::span<const Rows<Number>> rows,
                                        std::int64_t samples, const Number* d,
                                        const GradientScratch& s) {
  const std::int64_t stretches = words_of(shape_.inputs);
  workers.split(stretches, 1, [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t stretch = from; stretch < to; ++stretch) {
      for (std::size_t t = 0; t < rows.size(); ++t) {
        s.counts[static_cast<std::int64_t>(t) * stretches + stretch] =
            count_events(rows[t], samples, stretch, shape_.inputs);
      }
    }
  });
  // How many time steps from t on have room for the events of every stretch, and numbers for their rows.
  const auto most = static_cast<std::size_t>(std::max<std::int64_t>(kEventRows / samples, 1));
  const auto fitting = [&](std::size_t t) {
    std::size_t count = std::min(rows.size() - t, most);
    for (std::int64_t stretch = 0; stretch < stretches; ++stretch) {
      const std::int64_t inputs = std::min(kStretch, shape_.inputs - stretch * kStretch);
      std::int64_t found = 0;
      for (std::size_t i = 0; i < count; ++i) {
        found += s.counts[static_cast<std::int64_t>(t + i) * stretches + stretch];
        if (i > 0 && found > inputs * samples) count = i;
      }
    }
    return count;
  };
  for (std::size_t t = 0; t < rows.size();) {
    const std::span<const Rows<Number>> steps = rows.subspan(t, fitting(t));
    workers.split(stretches, 1, [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t stretch = from; stretch < to; ++stretch) {
        ebb::find_events(steps, samples, stretch, shape_.inputs, false, s.events);
      }
    });
    const std::int64_t all = static_cast<std::int64_t>(steps.size()) * samples;
    const Number* const own = d + static_cast<std::int64_t>(t) * samples * d_row();
    const auto work = [&](int thread, std::int64_t from, std::int64_t to) {
      // Threads without a piece have no room: a thread's piece comes no later than itself.
      Number* const block = s.block + std::min<std::int64_t>(thread, from) * kEventWidth *
                                          static_cast<std::int64_t>(rows.size()) * samples;
      for (std::int64_t piece = from; piece < to; ++piece) {
        copy_block(piece / blocks(), piece % blocks(), all, own, kEventWidth, block);
        for (std::int64_t i = 0; i < s.events.lists(); ++i) {
          const EventList<Number> list = s.events.of(i);
          add_events(piece / blocks(), piece % blocks(), list,
                     block + list.first_row * kEventWidth);
        }
      }
    };
    workers.split_by_thread(shape_.gates * blocks(), 1, work);
    t += steps.size();
  }
}

template <class Number>
void Connection<Number>::finish(Workers& workers, Number* gradient) {
  for (std::size_t e = 0; e < of_entries_.size(); ++e) {
    gradient[entries_[e]] += of_entries_[e];
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
template Bytes Connection<float>::gradient_bytes(std::int64_t, std::int64_t, int) const;
template Bytes Connection<double>::gradient_bytes(std::int64_t, std::int64_t, int) const;
template void Connection<float>::gradient(Workers&, std::span<const Rows<float>>, std::int64_t,
                                          const float*, std::byte*, float*);
template void Connection<double>::gradient(Workers&, std::span<const Rows<double>>, std::int64_t,
                                           const double*, std::byte*, double*);
template void Connection<float>::finish(Workers&, float*);
template void Connection<double>::finish(Workers&, double*);

}  // namespace ebb
