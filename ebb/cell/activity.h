// SPDX-License-Identifier: Apache-2.0
// What comes into a layer at one time step: numbers, or only those that are not 0.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <span>

#include "ebb/core/bits.h"
#include "ebb/core/carver.h"
#include "ebb/device/event_sums.h"

namespace ebb {

// Samples beside each other: numbers, or spikes as bits. One of both is set.
template <class Number>
struct Rows {
  const Number* values = nullptr;
  const std::uint64_t* bits = nullptr;
  std::int64_t stride = 0;  // from sample to sample, in numbers or words
  Number scale = 1;         // times every spike; values come scaled
};

// Some units of each sample, in rising order.
struct Lists {
  std::uint16_t* units = nullptr;  // [B,width]
  std::int32_t* counts = nullptr;  // [B]
  std::int64_t width = 0;
};

// Inputs of a stretch: those of a word of bits.
inline constexpr std::int64_t kStretch = 64;

// The inputs that are not 0, of some rows. Each stretch has a list of its own for every kEventRows rows, so
// that threads can find them side by side and a row's number is short.
template <class Number>
struct Events {
  std::uint16_t* rows = nullptr;
  Number* values = nullptr;         // null: all are 1
  std::uint32_t* starts = nullptr;  // list after list, one more than its inputs
  std::int64_t inputs = 0, most = 0;

  // With room for all inputs of that many rows.
  static Events at(Carver& carver, std::int64_t inputs, std::int64_t rows, bool ones) {
    const std::int64_t starts = (rows + kEventRows - 1) / kEventRows * (inputs + words_of(inputs));
    return {carver.take<std::uint16_t>(inputs * rows),
            ones ? nullptr : carver.take<Number>(inputs * rows), carver.take<std::uint32_t>(starts),
            inputs, rows};
  }
  // Stretch by stretch of the first rows, then of the next.
  std::int64_t lists() const { return (most + kEventRows - 1) / kEventRows * words_of(inputs); }
  std::int64_t start_of(std::int64_t list) const {
    return list / words_of(inputs) * (inputs + words_of(inputs)) +
           list % words_of(inputs) * (kStretch + 1);
  }
  EventList<Number> of(std::int64_t list) const {
    const std::int64_t first = list % words_of(inputs) * kStretch;
    const std::int64_t row = list / words_of(inputs) * kEventRows;
    const std::int64_t place = row * inputs + first * std::min(most - row, kEventRows);
    return {first,        std::min(inputs - first, kStretch),          row, starts + start_of(list),
            rows + place, values == nullptr ? nullptr : values + place};
  }
};

// Calls each(i, value) for the inputs of sample b in a stretch that are not 0, or for all.
template <class Number, class Each>
void for_each_event(const Rows<Number>& row, std::int64_t b, std::int64_t stretch,
                    std::int64_t inputs, bool all, const Each& each) {
  const std::int64_t first = stretch * kStretch, here = std::min(inputs - first, kStretch);
  if (row.bits != nullptr) {
    // Bits beyond the inputs mean nothing, whatever they are.
    const std::uint64_t own = here < kStretch ? (std::uint64_t{1} << here) - 1 : ~std::uint64_t{0};
    for_each_bit(row.bits[b * row.stride + stretch] & own, 0,
                 [&](std::int64_t i) { each(i, row.scale); });
    return;
  }
  // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): rows have bits or values
  const Number* const values = row.values + b * row.stride + first;
  for (std::int64_t i = 0; i < here; ++i) {
    if (all || values[i] != Number{0}) each(i, values[i]);
  }
}

template <class Number>
std::int32_t count_events(const Rows<Number>& row, std::int64_t samples, std::int64_t stretch,
                          std::int64_t inputs) {
  std::int32_t count = 0;
  for (std::int64_t b = 0; b < samples; ++b) {
    for_each_event(row, b, stretch, inputs, false, [&](std::int64_t, Number) { ++count; });
  }
  return count;
}

// Fills the lists of a stretch with the events of some time steps, of `samples` rows each: more than one
// only where all rows are kEventRows at most. With `all`, inputs that are 0 are among them.
template <class Number>
void find_events(std::span<const Rows<Number>> steps, std::int64_t samples, std::int64_t stretch,
                 std::int64_t inputs, bool all, const Events<Number>& events) {
  for (std::int64_t list = stretch; list < events.lists(); list += words_of(inputs)) {
    const EventList<Number> own = events.of(list);
    const std::int64_t place = own.rows - events.rows, first_row = own.first_row;
    const std::int64_t last_row = std::min(samples, first_row + kEventRows);
    // Of the next event of each input; at first their counts.
    std::array<std::uint32_t, kStretch + 1> places{};
    const auto each_row = [&](const auto& each) {
      for (std::size_t t = 0; t < steps.size(); ++t) {
        for (std::int64_t b = first_row; b < last_row; ++b) {
          const std::int64_t row = static_cast<std::int64_t>(t) * samples + b - first_row;
          for_each_event(steps[t], b, stretch, inputs, all, [&](std::int64_t i, Number value) {
            each(i, static_cast<std::uint16_t>(row), value);
          });
        }
      }
    };
    each_row(
        [&](std::int64_t i, std::uint16_t, Number) { ++places[static_cast<std::size_t>(i + 1)]; });
    std::partial_sum(places.begin(), places.end(), places.begin());
    std::copy_n(places.begin(), own.inputs + 1, events.starts + events.start_of(list));
    each_row([&](std::int64_t i, std::uint16_t row, Number value) {
      const std::int64_t e = place + places[static_cast<std::size_t>(i)]++;
      events.rows[e] = row;
      if (events.values != nullptr) events.values[e] = value;
    });
  }
}

}  // namespace ebb
