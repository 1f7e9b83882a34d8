// SPDX-License-Identifier: Apache-2.0
#include <dnnl.h>

#include <algorithm>

#include "ebb/core/error.h"
#include "ebb/device/plain_product.h"

// Its threads are OpenMP's; ours call it side by side. Weak: a build of it without OpenMP has none.
extern "C" void omp_set_num_threads(int) __attribute__((weak));

namespace ebb {
namespace {

void set_single_threaded() {
  thread_local const bool done = [] {
    if (omp_set_num_threads != nullptr) omp_set_num_threads(1);
    return true;
  }();
  static_cast<void>(done);
}

std::int64_t leading(const Matrix<float>& a, std::int64_t rows, std::int64_t columns) {
  return std::max({a.stride, a.transposed ? rows : columns, std::int64_t{1}});
}

}  // namespace

void library_product(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix<float>& a,
                     const Matrix<float>& b, float* c, std::int64_t stride, bool add) {
  set_single_threaded();
  const dnnl_status_t status =
      dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k, 1, a.data,
                 leading(a, m, k), b.data, leading(b, k, n), add ? 1.0F : 0.0F, c, stride);
  if (status != dnnl_success) {
    fail(ErrorCode::device, "oneDNN refused a product of ", m, " x ", k, " and ", k, " x ", n,
         " (status ", static_cast<int>(status), ")");
  }
}

// oneDNN has single precision only; double is for checks.
void library_product(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix<double>& a,
                     const Matrix<double>& b, double* c, std::int64_t stride, bool add) {
  plain_product(m, n, k, a, b, c, stride, add);
}

const char* matmul_library() { return "oneDNN"; }

}  // namespace ebb
