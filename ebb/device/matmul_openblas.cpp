// SPDX-License-Identifier: Apache-2.0
#include <cblas.h>

#include <algorithm>

#include "ebb/device/matmul.h"

namespace ebb {
namespace {

// Its own threads would stand in the way of ours, which call it side by side.
void set_single_threaded() {
  static const bool done = [] {
    openblas_set_num_threads(1);
    return true;
  }();
  static_cast<void>(done);
}

template <class Number>
int leading(const Matrix<Number>& a, std::int64_t rows, std::int64_t columns) {
  return static_cast<int>(std::max({a.stride, a.transposed ? rows : columns, std::int64_t{1}}));
}

constexpr CBLAS_TRANSPOSE way(bool transposed) { return transposed ? CblasTrans : CblasNoTrans; }

}  // namespace

void library_product(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix<float>& a,
                     const Matrix<float>& b, float* c, std::int64_t stride, bool add) {
  set_single_threaded();
  cblas_sgemm(CblasRowMajor, way(a.transposed), way(b.transposed), static_cast<int>(m),
              static_cast<int>(n), static_cast<int>(k), 1, a.data, leading(a, m, k), b.data,
              leading(b, k, n), add ? 1.0F : 0.0F, c, static_cast<int>(stride));
}

void library_product(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix<double>& a,
                     const Matrix<double>& b, double* c, std::int64_t stride, bool add) {
  set_single_threaded();
  cblas_dgemm(CblasRowMajor, way(a.transposed), way(b.transposed), static_cast<int>(m),
              static_cast<int>(n), static_cast<int>(k), 1, a.data, leading(a, m, k), b.data,
              leading(b, k, n), add ? 1.0 : 0.0, c, static_cast<int>(stride));
}

const char* matmul_library() { return "OpenBLAS"; }

}  // namespace ebb
