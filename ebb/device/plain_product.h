// SPDX-License-Identifier: Apache-2.0
// A product of matrices in plain loops: slow, and right for every shape.
#pragma once

#include <algorithm>

#include "ebb/device/matmul.h"

namespace ebb {

// The arguments are matmul's.
template <class Number>
void plain_product(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix<Number>& a,
                   const Matrix<Number>& b, Number* c, std::int64_t stride, bool add) {
  for (std::int64_t i = 0; i < m; ++i) {
    Number* const row = c + i * stride;
    if (!add) std::fill_n(row, n, Number{0});
    for (std::int64_t l = 0; l < k; ++l) {
      const Number factor = a.transposed ? a.data[l * a.stride + i] : a.data[i * a.stride + l];
      if (b.transposed) {
        for (std::int64_t j = 0; j < n; ++j) row[j] += factor * b.data[j * b.stride + l];
      } else {
        for (std::int64_t j = 0; j < n; ++j) row[j] += factor * b.data[l * b.stride + j];
      }
    }
  }
}

}  // namespace ebb
