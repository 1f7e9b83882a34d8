// SPDX-License-Identifier: Apache-2.0
#include "ebb/device/cuda_pool.h"

#include <limits>

#include "ebb/device/cuda_call.cuh"

namespace ebb {
namespace {

cudaMemPool_t pool_of(void* pool) { return static_cast<cudaMemPool_t>(pool); }
cudaStream_t stream_of(void* stream) { return static_cast<cudaStream_t>(stream); }

}  // namespace

CudaBlock::~CudaBlock() {
  if (pool_ != nullptr) pool_->give_back(data_, size_, stream_);
}

CudaPool::CudaPool(const Ledger& ledger, const std::string& name) : account_(ledger.open(name)) {
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

CudaPool::~CudaPool() { cudaMemPoolDestroy(pool_of(pool_)); }

CudaBlock CudaPool::take(Bytes bytes, void* stream) {
  const Bytes size = rounded(bytes);
  account_.charge(size);
  void* data = nullptr;
  cudaError_t status = cudaMallocFromPoolAsync(&data, static_cast<std::size_t>(size),
                                               pool_of(pool_), stream_of(stream));
  if (status == cudaErrorMemoryAllocation) {
    // What the pool holds in pieces may be enough in one piece.
    cudaGetLastError();
    cudaStreamSynchronize(stream_of(stream));
    cudaMemPoolTrimTo(pool_of(pool_), 0);
    status = cudaMallocFromPoolAsync(&data, static_cast<std::size_t>(size), pool_of(pool_),
                                     stream_of(stream));
  }
  if (status != cudaSuccess) account_.release(size);
  check_cuda(status, "cudaMallocFromPoolAsync");
  CudaBlock block;
  block.pool_ = this;
  block.stream_ = stream;
  block.data_ = static_cast<std::byte*>(data);
  block.size_ = size;
  return block;
}

Bytes CudaPool::reserved() const {
  std::uint64_t bytes = 0;
  check_cuda(cudaMemPoolGetAttribute(pool_of(pool_), cudaMemPoolAttrReservedMemCurrent, &bytes),
             "cudaMemPoolGetAttribute");
  return static_cast<Bytes>(bytes);
}

void CudaPool::give_back(std::byte* data, Bytes size, void* stream) noexcept {
  cudaFreeAsync(data, stream_of(stream));
  account_.release(size);
}

}  // namespace ebb
