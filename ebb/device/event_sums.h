// SPDX-License-Identifier: Apache-2.0
// Sums over the few rows of a matrix that something happened in: products with spikes and their
// gradients. Always kEventWidth columns, always in the order of the list.
#pragma once

#include <cstdint>

namespace ebb {

// A multiple of every packed_width.
inline constexpr std::int64_t kEventWidth = 48;

// Rows of `data`, each `stride` numbers after the one before it.
template <class Number>
struct EventRows {
  const Number* data = nullptr;
  std::int64_t stride = kEventWidth;
};

// sums[0,48) += the sum of the rows in list[0,count), each times its value; `values` null: times 1.
template <class Number>
void add_rows(std::int64_t count, const std::uint16_t* list, const Number* values,
              const EventRows<Number>& rows, Number* sums);

// For each i in list[0,count): results[i] += row i · d[0,48).
template <class Number>
void dot_rows(std::int64_t count, const std::uint16_t* list, const EventRows<Number>& rows,
              const Number* d, Number* results);

}  // namespace ebb
