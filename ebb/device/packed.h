// SPDX-License-Identifier: Apache-2.0
// Weights laid out once for many products with few rows: what a recurrent layer does at every time
// step. A result's bits depend on its row and its weights alone, not on which rows and columns are
// asked for together.
#pragma once

#include <cstdint>

namespace ebb {

// How wide panels are: whole ones and, as the last of a matrix may be narrower, the step in which
// widths grow.
struct PanelWidths {
  std::int64_t whole = 0, step = 0;
};
template <class Number>
PanelWidths panel_widths();

template <class Number>
std::int64_t packed_width() {
  return panel_widths<Number>().whole;
}

// Of the panel that holds the last `columns` of a matrix, or the next packed_width of them.
template <class Number>
std::int64_t panel_width(std::int64_t columns) {
  const auto [whole, step] = panel_widths<Number>();
  return columns >= whole ? whole : (columns + step - 1) / step * step;
}

// A packed matrix of k rows and n columns is panels of `packed_width` columns, one after the other;
// in each, row after row. The last panel is a panel_width wide, filled up with zeros: a matrix of few
// columns is not much larger for wide vectors.
template <class Number>
std::int64_t packed_size(std::int64_t k, std::int64_t n) {
  const std::int64_t whole = n / packed_width<Number>() * packed_width<Number>();
  return (whole + panel_width<Number>(n - whole)) * k;
}

// Element (i,j) of the matrix is weights[i * row + j * column].
template <class Number>
void pack(std::int64_t k, std::int64_t n, const Number* weights, std::int64_t row,
          std::int64_t column, Number* packed);

// c[rows,n] += a[rows,k] · the first n columns of the panels at `packed`: whole panels, or all that
// are left. Rows of a are `a_stride` numbers apart, those of c `c_stride`.
template <class Number>
void packed_product(std::int64_t rows, std::int64_t n, std::int64_t k, const Number* a,
                    std::int64_t a_stride, const Number* packed, Number* c, std::int64_t c_stride);

}  // namespace ebb
