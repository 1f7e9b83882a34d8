// SPDX-License-Identifier: Apache-2.0
// Weights laid out once for many products with few rows: what a recurrent layer does at every time
// step. A result's bits depend on its row and its weights alone, not on which rows and columns are
// asked for together.
#pragma once

#include <cstdint>

namespace ebb {

// A packed matrix of k rows and n columns is panels of `packed_width` columns, one after the other;
// in each, row after row. The last panel is filled up with zeros.
template <class Number>
std::int64_t packed_width();

template <class Number>
std::int64_t packed_size(std::int64_t k, std::int64_t n) {
  const std::int64_t width = packed_width<Number>();
  return (n + width - 1) / width * width * k;
}

// Element (i,j) of the matrix is weights[i * row + j * column].
template <class Number>
void pack(std::int64_t k, std::int64_t n, const Number* weights, std::int64_t row,
          std::int64_t column, Number* packed);

// c[rows,n] += a[rows,k] · the first n columns of the panels at `packed`. Rows of a are `a_stride`
// numbers apart, those of c `c_stride`.
template <class Number>
void packed_product(std::int64_t rows, std::int64_t n, std::int64_t k, const Number* a,
                    std::int64_t a_stride, const Number* packed, Number* c, std::int64_t c_stride);

}  // namespace ebb
