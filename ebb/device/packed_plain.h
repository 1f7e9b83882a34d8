// SPDX-License-Identifier: Apache-2.0
// packed_product in plain loops, for any panel width; columns may be cut at whole panels.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ebb/device/packed.h"

namespace ebb {

template <class Number, std::int64_t width>
void plain_packed_product(std::int64_t rows, const Columns& columns, std::int64_t k,
                          const Factors<Number>& a, const Number* packed,
                          const Results<Number>& c) {
  for (std::int64_t from = columns.from; from < columns.to; from += width) {
    const std::int64_t here = std::min(width, columns.to - from);
    const Number* const panel = packed + from * k;
    for (std::int64_t r = 0; r < rows; ++r) {
      Number sums[width] = {};
      for (std::int64_t i = 0; i < k; ++i) {
        const Number factor = a.values[a.turned ? i * a.stride + r : r * a.stride + i];
        for (std::int64_t j = 0; j < width; ++j) sums[j] += factor * panel[i * width + j];
      }
      const std::int64_t first = from - columns.from;
      Number* const to = c.values + r * c.stride + first;
      const Number* const start = c.start != nullptr ? c.start + first : to;
      for (std::int64_t j = 0; j < here; ++j) to[j] = start[j] + sums[j];
    }
  }
}

}  // namespace ebb
