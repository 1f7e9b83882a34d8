// SPDX-License-Identifier: Apache-2.0
// The sums of event_sums.h in plain loops.
#pragma once

#include "ebb/device/event_sums.h"

namespace ebb {

template <class Number>
void plain_add_weights(const EventList<Number>& events, const Number* weights, Number* sums,
                       std::int64_t stride) {
  for (std::int64_t i = 0; i < events.inputs; ++i) {
    const Number* const from = weights + i * kEventWidth;
    for (std::uint32_t e = events.starts[i]; e < events.starts[i + 1]; ++e) {
      Number* const to = sums + events.rows[e] * stride;
      for (std::int64_t j = 0; j < kEventWidth; ++j) to[j] += events.value(e) * from[j];
    }
  }
}

template <class Number>
void plain_add_to_weights(const EventList<Number>& events, const Number* d, Number* weights) {
  for (std::int64_t i = 0; i < events.inputs; ++i) {
    Number* const to = weights + i * kEventWidth;
    for (std::uint32_t e = events.starts[i]; e < events.starts[i + 1]; ++e) {
      const Number* const from = d + events.rows[e] * kEventWidth;
      for (std::int64_t j = 0; j < kEventWidth; ++j) to[j] += events.value(e) * from[j];
    }
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

template <class Number>
void plain_add_sparse_product(std::int64_t count, const SparseRows<Number>& rows,
                              std::int64_t width, const Number* x, Number* sums) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t* const own = rows.starts + i * rows.stride;
    for (std::uint32_t e = own[0]; e < own[rows.stride]; ++e) {
      const Number* const from = x + rows.columns[e] * width;
      for (std::int64_t b = 0; b < width; ++b) sums[i * width + b] += rows.values[e] * from[b];
    }
  }
}

}  // namespace ebb
