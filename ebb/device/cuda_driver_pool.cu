// SPDX-License-Identifier: Apache-2.0
#include "ebb/device/cuda_driver_pool.h"

#include <cstdint>
#include <limits>

#include "ebb/device/cuda_call.cuh"

namespace ebb {
namespace {

cudaMemPool_t pool_of(void* pool) { return static_cast<cudaMemPool_t>(pool); }
cudaStream_t stream_of(void* stream) { return static_cast<cudaStream_t>(stream); }

}  // namespace

CudaDriverPool::CudaDriverPool() {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  cudaMemPoolProps wanted = {};
  wanted.allocType = cudaMemAllocationTypePinned;
  wanted.handleTypes = cudaMemHandleTypeNone;
  wanted.location.type = cudaMemLocationTypeDevice;
  wanted.location.id = device;
  cudaMemPool_t made = nullptr;
  check_cuda(cudaMemPoolCreate(&made, &wanted), "cudaMemPoolCreate");
  pool_ = made;
  // Or every wait for the device would hand memory back that the next run takes again.
  std::uint64_t all = std::numeric_limits<std::uint64_t>::max();
  const cudaError_t status = cudaMemPoolSetAttribute(made, cudaMemPoolAttrReleaseThreshold, &all);
  if (status != cudaSuccess) cudaMemPoolDestroy(made);
  check_cuda(status, "cudaMemPoolSetAttribute");
}

CudaDriverPool::~CudaDriverPool() { cudaMemPoolDestroy(pool_of(pool_)); }

void* CudaDriverPool::take(Bytes bytes, void* stream) {
  void* data = nullptr;
  const cudaError_t status = cudaMallocFromPoolAsync(&data, static_cast<std::size_t>(bytes),
                                                     pool_of(pool_), stream_of(stream));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // or the next call would tell of it again
    return nullptr;
  }
  check_cuda(status, "cudaMallocFromPoolAsync");
  return data;
}

void CudaDriverPool::give_back(void* data, Bytes, void* stream) noexcept {
  cudaFreeAsync(data, stream_of(stream));
}

Bytes CudaDriverPool::reserved() const {
  std::uint64_t bytes = 0;
  check_cuda(cudaMemPoolGetAttribute(pool_of(pool_), cudaMemPoolAttrReservedMemCurrent, &bytes),
             "cudaMemPoolGetAttribute");
  return static_cast<Bytes>(bytes);
}

void CudaDriverPool::trim() noexcept { cudaMemPoolTrimTo(pool_of(pool_), 0); }

void wait_for_cuda() noexcept {
  if (cudaDeviceSynchronize() != cudaSuccess) cudaGetLastError();
}

}  // namespace ebb
