// SPDX-License-Identifier: Apache-2.0
// Where the library is built without CUDA.
#include "ebb/cell/leaky.h"
#include "ebb/core/error.h"

namespace ebb {
namespace {

constexpr const char* kWithoutKernels = "this build of ebb has no CUDA kernels";

}  // namespace

void leaky_forward(const LeakyShape&, const float*, const float*, float*, float*, void*) {
  fail(ErrorCode::unavailable, kWithoutKernels);
}
void leaky_backward(const LeakyShape&, const LeakyBackward&, void*) {
  fail(ErrorCode::unavailable, kWithoutKernels);
}

}  // namespace ebb
