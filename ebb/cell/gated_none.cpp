// SPDX-License-Identifier: Apache-2.0
// Where the library is built without CUDA.
#include "ebb/cell/gated.h"
#include "ebb/core/error.h"

namespace ebb {
namespace {

constexpr const char* kWhy = "this build of ebb has no CUDA kernels";

}  // namespace

std::vector<int> gated_architectures() { return {}; }
std::string gated_unfit(const GatedShape&) { return kWhy; }
void gated_forward(const GatedShape&, const GatedForward&, bool, void*) {
  fail(ErrorCode::unavailable, kWhy);
}
void gated_recall(const GatedShape&, const GatedRecall&, void*) {
  fail(ErrorCode::unavailable, kWhy);
}
void gated_backward(const GatedShape&, const GatedBackward&, void*) {
  fail(ErrorCode::unavailable, kWhy);
}
void set_gated_patience(std::int64_t) {}
void set_gated_registers(bool) {}

}  // namespace ebb
