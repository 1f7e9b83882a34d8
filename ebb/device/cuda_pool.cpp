// SPDX-License-Identifier: Apache-2.0
#include "ebb/device/cuda_pool.h"

#include <mutex>
#include <vector>

#include "ebb/core/error.h"

namespace ebb {
namespace {

struct DriverPools {
  std::mutex mutex;
  std::vector<CudaDriverPool*> all;
};

DriverPools& driver_pools() {
  static DriverPools pools;
  return pools;
}

}  // namespace

void trim_cuda_pools() noexcept {
  wait_for_cuda();
  DriverPools& pools = driver_pools();
  const std::scoped_lock lock(pools.mutex);
  for (CudaDriverPool* const pool : pools.all) pool->trim();
}

CudaBlock::~CudaBlock() {
  if (pool_ != nullptr) pool_->give_back(data_, size_, stream_);
}

CudaPool::CudaPool(const Ledger& ledger, const std::string& name) : account_(ledger.open(name)) {
  DriverPools& pools = driver_pools();
  const std::scoped_lock lock(pools.mutex);
  pools.all.push_back(&pool_);
}

CudaPool::~CudaPool() {
  DriverPools& pools = driver_pools();
  const std::scoped_lock lock(pools.mutex);
  std::erase(pools.all, &pool_);
}

CudaBlock CudaPool::take(Bytes bytes, void* stream) {
  const Bytes size = rounded(bytes);
  account_.charge(size);
  void* data = nullptr;
  try {
    data = pool_.take(size, stream);
    if (data == nullptr) {
      // Pools keep what they do not use, this one perhaps in pieces that are too small.
      trim_cuda_pools();
      data = pool_.take(size, stream);
    }
    if (data == nullptr) fail(ErrorCode::out_of_memory, "cudaMallocFromPoolAsync: out of memory");
  } catch (...) {
    account_.release(size);
    throw;
  }
  CudaBlock block;
  block.pool_ = this;
  block.stream_ = stream;
  block.data_ = static_cast<std::byte*>(data);
  block.size_ = size;
  return block;
}

void CudaPool::give_back(std::byte* data, Bytes size, void* stream) noexcept {
  pool_.give_back(data, size, stream);
  account_.release(size);
}

}  // namespace ebb
