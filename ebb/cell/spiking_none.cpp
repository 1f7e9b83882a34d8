// SPDX-License-Identifier: Apache-2.0
// Where the library is built without CUDA.
#include "ebb/cell/spiking.h"
#include "ebb/core/error.h"

namespace ebb {
namespace {

constexpr const char* kWithoutKernels = "this build of ebb has no CUDA kernels";

}  // namespace

std::string spiking_unfit(const SpikingShape&) { return kWithoutKernels; }
void spiking_forward(const SpikingShape&, const SpikingForward&, void*) {
  fail(ErrorCode::unavailable, kWithoutKernels);
}
void spiking_recall(const SpikingShape&, const SpikingRecall&, void*) {
  fail(ErrorCode::unavailable, kWithoutKernels);
}
void spiking_backward(const SpikingShape&, const SpikingBackward&, void*) {
  fail(ErrorCode::unavailable, kWithoutKernels);
}

}  // namespace ebb
