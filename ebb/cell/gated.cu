// SPDX-License-Identifier: Apache-2.0
#include "ebb/cell/gated.h"

#include <atomic>
#include <limits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ebb/cell/gated_spread.cuh"
#include "ebb/device/cuda_call.cuh"
#include "ebb/device/device_memory.h"

namespace ebb {
namespace {

using gated::Gpu;
using gated::Host;
using gated::OfNumber;
using gated::Spread;

std::atomic<long long> patience{1LL << 24};  // seconds
std::atomic<bool> in_registers{true};

constexpr int kOldest = 8;  // generation of GPUs that multiply bfloat16 and tf32

// The word that kernels set when they give up.
int* gave_up() {
  static int* const word = [] {
    int* found = nullptr;
    check_cuda(cudaHostAlloc(&found, sizeof(int), cudaHostAllocMapped | cudaHostAllocPortable),
               "cudaHostAlloc");
    *found = 0;
    return found;
  }();
  return word;
}

// The runtime is a part of this library, the driver is the machine's.
bool driver_is_too_old() {
  int driver = 0;
  check_cuda(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  return driver / 1000 < CUDART_VERSION / 1000;
}

template <class F>
auto with_number(GatedNumber number, const F& f) {
  if (number == GatedNumber::bf16) return f.template operator()<__nv_bfloat16>();
  if (number == GatedNumber::f16) return f.template operator()<__half>();
  if (number == GatedNumber::f32) return f.template operator()<gated::Exact>();
  return f.template operator()<float>();
}

}  // namespace

Gpu gated::current_gpu() {
  int device = 0;
  Gpu gpu;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&gpu.processors, cudaDevAttrMultiProcessorCount, device),
             "cudaDeviceGetAttribute");
  check_cuda(cudaDeviceGetAttribute(&gpu.shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
             "cudaDeviceGetAttribute");
  check_cuda(cudaDeviceGetAttribute(&gpu.generation, cudaDevAttrComputeCapabilityMajor, device),
             "cudaDeviceGetAttribute");
  gpu.keeps = in_registers;
  gpu.shared -= 1024;  // what the system and the kernels take for themselves
  return gpu;
}

std::string gated::gpu_unfit() {
  if (driver_is_too_old()) {
    return "the kernels need a driver for CUDA " + std::to_string(CUDART_VERSION / 1000) +
           " or later";
  }
  const std::string missing = cuda_missing();
  if (!missing.empty()) return missing;
  gave_up();  // taken before a call that may be captured, in which it could not be
  if (current_gpu().generation < kOldest)
    return "the GPU is older than compute capability " + std::to_string(kOldest) + ".0";
  return {};
}

void gated::check_earlier() {
  if (std::atomic_ref(*gave_up()).exchange(0) == 0) return;
  fail(ErrorCode::device,
       "blocks of an earlier segment waited in vain for each other, so that its results are wrong; "
       "does another program hold a part of the GPU?");
}

Host gated::host_of(void* stream) {
  return {patience, gave_up(), static_cast<cudaStream_t>(stream)};
}

namespace {

using gated::check_earlier;
using gated::current_gpu;
using gated::host_of;

Spread spread_of(const GatedShape& shape) {
  const std::int64_t each = units_together(shape.number);
  constexpr std::int64_t most = std::numeric_limits<int>::max() / 16;
  if (shape.hidden % each != 0) return {};
  if (shape.steps < 1 || shape.batch < 1 || shape.hidden < 1 || shape.steps > most ||
      shape.batch > most || shape.hidden > most)
    return {};
  const Gpu gpu = current_gpu();
  if (gpu.generation < kOldest) return {};
  return with_number(shape.number, [&]<class T>() { return OfNumber<T>::spread(shape, gpu); });
}

Spread checked_spread(const GatedShape& shape) {
  check_earlier();
  const Spread found = spread_of(shape);
  if (found.units == 0) fail(ErrorCode::invalid_argument, "gated cells: ", gated_unfit(shape));
  return found;
}

}  // namespace

std::vector<int> gated_architectures() {
  std::vector<int> found{__CUDA_ARCH_LIST__};
  for (int& each : found) each /= 10;
  return found;
}

std::string gated_unfit(const GatedShape& shape) {
  const std::string missing = gated::gpu_unfit();
  if (!missing.empty()) return missing;
  if (shape.steps < 1 || shape.batch < 1 || shape.hidden < 1)
    return "steps, batch and hidden must be 1 or more";
  const std::int64_t each = units_together(shape.number);
  if (shape.hidden % each != 0) return "hidden must be a multiple of " + std::to_string(each);
  if (spread_of(shape).units == 0)
    return "the recurrent weights do not fit into the shared memory of the GPU";
  return {};
}

void gated_forward(const GatedShape& shape, const GatedForward& given, bool record, void* stream) {
  const Spread how = checked_spread(shape);
  with_number(shape.number,
              [&]<class T>() { OfNumber<T>::forward(shape, how, given, record, host_of(stream)); });
}

void gated_recall(const GatedShape& shape, const GatedRecall& given, void* stream) {
  if (shape.cell == GatedCell::egru)
    fail(ErrorCode::invalid_argument, "gated cells: an egru is not recalled");
  checked_spread(shape);
  with_number(shape.number, [&]<class T>() { OfNumber<T>::recall(shape, given, host_of(stream)); });
}

void gated_backward(const GatedShape& shape, const GatedBackward& given, void* stream) {
  const Spread how = checked_spread(shape);
  with_number(shape.number,
              [&]<class T>() { OfNumber<T>::backward(shape, how, given, host_of(stream)); });
}

void set_gated_patience(std::int64_t looks) { patience = looks; }
void set_gated_registers(bool yes) { in_registers = yes; }

}  // namespace ebb
