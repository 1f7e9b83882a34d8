// SPDX-License-Identifier: Apache-2.0
// Products with what is mostly 0: inputs of which few are spikes, and weights of which few are there.
// A result's bits depend on its own terms and their order alone.
#pragma once

#include <cstdint>

namespace ebb {

// A multiple of every packed_width.
inline constexpr std::int64_t kEventWidth = 48;

// Events of some inputs, from `first` on, in rising order of inputs and, of one input, of rows: those of
// input first + i are [starts[i], starts[i + 1]), and event e is values[e] in row rows[e] of those that
// begin at `first_row`. `values` null: 1. Weights begin with those of input `first`.
template <class Number>
struct EventList {
  std::int64_t first = 0, inputs = 0, first_row = 0;
  const std::uint32_t* starts = nullptr;
  const std::uint16_t* rows = nullptr;
  const Number* values = nullptr;

  Number value(std::uint32_t e) const { return values == nullptr ? Number{1} : values[e]; }
};
inline constexpr std::int64_t kEventRows = 1 << 16;

// For each event, in their order: the sums of its row, `stride` from row to row and first_row's first, +=
// the weights of its input, kEventWidth each, times its value.
template <class Number>
void add_weights(const EventList<Number>& events, const Number* weights, Number* sums,
                 std::int64_t stride);

// For each event, in their order: the weights of its input += what d has for its row, kEventWidth each and
// first_row's first, times its value.
template <class Number>
void add_to_weights(const EventList<Number>& events, const Number* d, Number* weights);

// For each i in list[0,count): results[i] += row i · d[0,48). The bits of a result do not depend on
// the others.
template <class Number>
void dot_rows(std::int64_t count, const std::uint16_t* list, const Number* rows, const Number* d,
              Number* results);

// A matrix of which few numbers are there: row i has those in [starts[i * stride], starts[(i + 1) *
// stride]).
template <class Number>
struct SparseRows {
  const std::uint32_t* starts = nullptr;
  std::int64_t stride = 1;
  const std::uint16_t* columns = nullptr;
  const Number* values = nullptr;
};

// sums[count,width] += the first `count` rows · x[columns,width]. width is kNarrow or kWide.
inline constexpr std::int64_t kNarrow = 8, kWide = 32;
template <class Number>
void add_sparse_product(std::int64_t count, const SparseRows<Number>& rows, std::int64_t width,
                        const Number* x, Number* sums);

}  // namespace ebb
