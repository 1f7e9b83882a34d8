// SPDX-License-Identifier: Apache-2.0
// Weights laid out once for many products with few rows: what a recurrent layer does at every time
// step. A result's bits depend on its row and its weights alone, not on which rows and columns are
// asked for together.
#pragma once

#include <cstdint>

namespace ebb {

// How wide panels are: whole ones and, as the last of a matrix may be narrower, the step in which
// widths grow. Columns may be asked for from any multiple of `cut` on.
struct PanelWidths {
  std::int64_t whole = 0, step = 0, cut = 0;
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
  const auto [whole, step, cut] = panel_widths<Number>();
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

// Columns [from,to) of a packed matrix that has `all`.
struct Columns {
  std::int64_t from = 0, to = 0, all = 0;
};

// Element (r,i) is values[r * stride + i] or, turned, values[i * stride + r].
template <class Number>
struct Factors {
  const Number* values = nullptr;
  std::int64_t stride = 0;
  bool turned = false;
};

// Rows of results are `stride` numbers apart. They are added to what is there or, where it is not
// null, to `start`, the same for every row.
template <class Number>
struct Results {
  Number* values = nullptr;
  std::int64_t stride = 0;
  const Number* start = nullptr;
};

// c[rows,to - from] += a[rows,k] · some columns.
template <class Number>
void packed_product(std::int64_t rows, const Columns& columns, std::int64_t k,
                    const Factors<Number>& a, const Number* packed, const Results<Number>& c);

// The same with the first n columns of the panels at `packed`: whole panels, or all that are left.
template <class Number>
void packed_product(std::int64_t rows, std::int64_t n, std::int64_t k, const Number* a,
                    std::int64_t a_stride, const Number* packed, Number* c, std::int64_t c_stride) {
  packed_product<Number>(rows, {0, n, n}, k, {a, a_stride, false}, packed, {c, c_stride, nullptr});
}

}  // namespace ebb
