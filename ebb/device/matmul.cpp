// SPDX-License-Identifier: Apache-2.0
#include "ebb/device/matmul.h"

namespace ebb {
namespace {

template <class Number>
Matrix<Number> rows_from(const Matrix<Number>& a, std::int64_t row) {
  return {a.data + (a.transposed ? row : row * a.stride), a.stride, a.transposed};
}

template <class Number>
Matrix<Number> columns_from(const Matrix<Number>& b, std::int64_t column) {
  return {b.data + (b.transposed ? column * b.stride : column), b.stride, b.transposed};
}

}  // namespace

template <class Number>
void matmul(Workers& workers, std::int64_t m, std::int64_t n, std::int64_t k,
            const Matrix<Number>& a, const Matrix<Number>& b, Number* c, std::int64_t stride,
            bool add) {
  constexpr std::int64_t kBlock = 16;
  if (m == 0 || n == 0) return;
  if (m >= n) {
    workers.split(m, kBlock, [&](std::int64_t from, std::int64_t to) {
      library_product(to - from, n, k, rows_from(a, from), b, c + from * stride, stride, add);
    });
  } else {
    workers.split(n, kBlock, [&](std::int64_t from, std::int64_t to) {
      library_product(m, to - from, k, a, columns_from(b, from), c + from, stride, add);
    });
  }
}

template void matmul(Workers&, std::int64_t, std::int64_t, std::int64_t, const Matrix<float>&,
                     const Matrix<float>&, float*, std::int64_t, bool);
template void matmul(Workers&, std::int64_t, std::int64_t, std::int64_t, const Matrix<double>&,
                     const Matrix<double>&, double*, std::int64_t, bool);

}  // namespace ebb
