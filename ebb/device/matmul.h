// SPDX-License-Identifier: Apache-2.0
// Products of large matrices: oneDNN or OpenBLAS where the build has them, else plain loops. The
// same shapes on as many threads give the same bits each time.
#pragma once

#include <cstdint>

#include "ebb/core/workers.h"

namespace ebb {

// Rows `stride` numbers apart; transposed: element (i,j) is the matrix's (j,i).
template <class Number>
struct Matrix {
  const Number* data = nullptr;
  std::int64_t stride = 0;
  bool transposed = false;
};

// c[m,n] = a[m,k] · b[k,n], added to what c holds if `add`. Rows of c are `stride` numbers apart.
// Number is float or double.
template <class Number>
void matmul(Workers& workers, std::int64_t m, std::int64_t n, std::int64_t k,
            const Matrix<Number>& a, const Matrix<Number>& b, Number* c, std::int64_t stride,
            bool add);

// "OpenBLAS", "oneDNN" or "plain loops".
const char* matmul_library();

// The library's own, on the calling thread alone.
void library_product(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix<float>& a,
                     const Matrix<float>& b, float* c, std::int64_t stride, bool add);
void library_product(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix<double>& a,
                     const Matrix<double>& b, double* c, std::int64_t stride, bool add);

}  // namespace ebb
