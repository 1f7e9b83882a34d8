// SPDX-License-Identifier: Apache-2.0
// The sums of event_sums.h in plain loops.
#pragma once

#include "ebb/device/event_sums.h"

namespace ebb {

template <class Number>
void plain_add_rows(std::int64_t count, const std::uint16_t* list, const Number* values,
                    const Number* rows, Number* sums) {
  for (std::int64_t e = 0; e < count; ++e) {
    const Number* const row = rows + list[e] * kEventWidth;
    const Number value = values == nullptr ? Number{1} : values[e];
    for (std::int64_t j = 0; j < kEventWidth; ++j) sums[j] += value * row[j];
  }
}

template <class Number>
void plain_add_to_rows(std::int64_t count, const std::uint16_t* list, const Number* values,
                       const Number* d, Number* rows) {
  for (std::int64_t e = 0; e < count; ++e) {
    Number* const row = rows + list[e] * kEventWidth;
    const Number value = values == nullptr ? Number{1} : values[e];
    for (std::int64_t j = 0; j < kEventWidth; ++j) row[j] += value * d[j];
  }
}

template <class Number>
void plain_dot_rows(std::int64_t count, const std::uint16_t* list, const Number* rows,
                    const Number* d, Number* results) {
  for (std::int64_t e = 0; e < count; ++e) {
    const Number* const row = rows + list[e] * kEventWidth;
    Number sum = 0;
    for (std::int64_t j = 0; j < kEventWidth; ++j) sum += row[j] * d[j];
    results[list[e]] += sum;
  }
}

}  // namespace ebb
