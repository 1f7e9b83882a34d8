// SPDX-License-Identifier: Apache-2.0
#include "ebb/device/packed.h"

#include <algorithm>

namespace ebb {

template <class Number>
void pack(std::int64_t k, std::int64_t n, const Number* weights, std::int64_t row,
          std::int64_t column, Number* packed) {
  const std::int64_t width = packed_width<Number>();
  for (std::int64_t from = 0; from < n; from += width) {
    const std::int64_t here = std::min(width, n - from);
    const std::int64_t wide = panel_width<Number>(here);
    for (std::int64_t i = 0; i < k; ++i) {
      const Number* const source = weights + i * row + from * column;
      if (column == 1) {
        std::copy_n(source, here, packed);
      } else {
        for (std::int64_t j = 0; j < here; ++j) packed[j] = source[j * column];
      }
      std::fill(packed + here, packed + wide, Number{0});
      packed += wide;
    }
  }
}

template void pack(std::int64_t, std::int64_t, const float*, std::int64_t, std::int64_t, float*);
template void pack(std::int64_t, std::int64_t, const double*, std::int64_t, std::int64_t, double*);

}  // namespace ebb
