// SPDX-License-Identifier: Apache-2.0
#include "ebb/device/cuda_probe.h"

#include "ebb/device/cuda_call.cuh"

namespace ebb {
namespace {

constexpr int kThreads = 256, kBlocksEach = 8;  // of a multiprocessor: all threads that it has
constexpr int kAtOnce = 4;                      // loads of a thread that are under way together

// Volatile, or a load from the same place would be done once for all rounds.
__device__ uint4 load(const uint4* from) {
  uint4 found;
  asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(found.x), "=r"(found.y), "=r"(found.z), "=r"(found.w)
               : "l"(from)
               : "memory");
  return found;
}
__device__ void store(uint4* to, uint4 given) {
  asm volatile("st.global.cg.v4.u32 [%0], {%1,%2,%3,%4};"
               :
               : "l"(to), "r"(given.x), "r"(given.y), "r"(given.z), "r"(given.w)
               : "memory");
}

__global__ void __launch_bounds__(kThreads)
    copy_again(uint4* to, const uint4* from, std::int64_t count, std::int64_t times) {
  const std::int64_t all = static_cast<std::int64_t>(gridDim.x) * kThreads;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (std::int64_t round = 0; round < times; ++round) {
    for (std::int64_t i = first; i < count; i += kAtOnce * all) {
      uint4 held[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (i + k * all < count) held[k] = load(from + i + k * all);
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (i + k * all < count) store(to + i + k * all, held[k]);
      }
    }
  }
}

__global__ void nothing() {}

cudaDeviceProp properties() {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  cudaDeviceProp found = {};
  check_cuda(cudaGetDeviceProperties(&found, device), "cudaGetDeviceProperties");
  return found;
}

}  // namespace

CudaFacts cuda_facts() {
  const cudaDeviceProp own = properties();
  std::size_t unused = 0, all = 0;
  check_cuda(cudaMemGetInfo(&unused, &all), "cudaMemGetInfo");
  CudaFacts facts;
  facts.name = own.name;
  facts.major = own.major;
  facts.minor = own.minor;
  facts.processors = own.multiProcessorCount;
  facts.memory = static_cast<Bytes>(all);
  facts.unused = static_cast<Bytes>(unused);
  facts.cache = own.l2CacheSize;
  return facts;
}

void cuda_launch_nothing(void* stream) {
  nothing<<<1, 32, 0, static_cast<cudaStream_t>(stream)>>>();
  check_cuda(cudaGetLastError(), "cuda_launch_nothing");
}

void cuda_copy_again(void* to, const void* from, Bytes bytes, std::int64_t times, void* stream) {
  int device = 0, processors = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device),
             "cudaDeviceGetAttribute");
  copy_again<<<static_cast<unsigned>(processors * kBlocksEach), kThreads, 0,
               static_cast<cudaStream_t>(stream)>>>(
      static_cast<uint4*>(to), static_cast<const uint4*>(from), bytes / sizeof(uint4), times);
  check_cuda(cudaGetLastError(), "cuda_copy_again");
}

void cuda_wait(void* stream) {
  check_cuda(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), "cudaStreamSynchronize");
}

}  // namespace ebb
