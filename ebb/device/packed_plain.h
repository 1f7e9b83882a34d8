// SPDX-License-Identifier: Apache-2.0
// packed_product in plain loops, for any panel width.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ebb {

template <class Number, std::int64_t width>
void plain_packed_product(std::int64_t rows, std::int64_t n, std::int64_t k, const Number* a,
                          std::int64_t a_stride, const Number* packed, Number* c,
                          std::int64_t c_stride) {
  for (std::int64_t from = 0; from < n; from += width, packed += k * width) {
    const std::int64_t here = std::min(width, n - from);
    for (std::int64_t r = 0; r < rows; ++r) {
      Number sums[width] = {};
      for (std::int64_t i = 0; i < k; ++i) {
        const Number factor = a[r * a_stride + i];
        for (std::int64_t j = 0; j < width; ++j) sums[j] += factor * packed[i * width + j];
      }
      for (std::int64_t j = 0; j < here; ++j) c[r * c_stride + from + j] += sums[j];
    }
  }
}

}  // namespace ebb
