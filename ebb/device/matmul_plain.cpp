// SPDX-License-Identifier: Apache-2.0
#include "ebb/device/plain_product.h"

namespace ebb {

void library_product(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix<float>& a,
                     const Matrix<float>& b, float* c, std::int64_t stride, bool add) {
  plain_product(m, n, k, a, b, c, stride, add);
}

void library_product(std::int64_t m, std::int64_t n, std::int64_t k, const Matrix<double>& a,
                     const Matrix<double>& b, double* c, std::int64_t stride, bool add) {
  plain_product(m, n, k, a, b, c, stride, add);
}

const char* matmul_library() { return "plain loops"; }

}  // namespace ebb
