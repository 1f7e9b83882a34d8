// SPDX-License-Identifier: Apache-2.0
// Sums over the few rows of a matrix that something happened in: products with spikes and their
// gradients. Rows are kEventWidth numbers, one after the other; always in the order of the list.
#pragma once

#include <cstdint>

namespace ebb {

// A multiple of every packed_width.
inline constexpr std::int64_t kEventWidth = 48;

// sums[0,48) += the rows in list[0,count), each times its value; `values` null: times 1.
template <class Number>
void add_rows(std::int64_t count, const std::uint16_t* list, const Number* values,
              const Number* rows, Number* sums);

// For each i in list[0,count): row i += d[0,48), times its value, as in add_rows.
template <class Number>
void add_to_rows(std::int64_t count, const std::uint16_t* list, const Number* values,
                 const Number* d, Number* rows);

// For each i in list[0,count): results[i] += row i · d[0,48). The bits of a result do not depend on
// the others.
template <class Number>
void dot_rows(std::int64_t count, const std::uint16_t* list, const Number* rows, const Number* d,
              Number* results);

}  // namespace ebb
