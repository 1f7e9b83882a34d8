// SPDX-License-Identifier: Apache-2.0
// Memory of the CUDA device that is current, in the order of a stream: taken and given back without waiting for the device. Charged to
// a ledger. What the driver holds for it beyond that is its own business: reserved() says how much. It stays with the pool for the next
// run, until somebody else in the process finds no memory on the device.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "ebb/device/cuda_driver_pool.h"
#include "ebb/device/ledger.h"

namespace ebb {

class CudaPool;

// Given back, in the order of its stream, when it is destroyed or assigned to. The pool must outlive it.
class CudaBlock {
 public:
  CudaBlock() = default;
  CudaBlock(CudaBlock&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)),
        stream_(other.stream_),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  CudaBlock& operator=(CudaBlock&& other) noexcept {
    CudaBlock old(std::move(other));
    std::swap(pool_, old.pool_);
    std::swap(stream_, old.stream_);
    std::swap(data_, old.data_);
    std::swap(size_, old.size_);
    return *this;
  }
  ~CudaBlock();

  std::byte* data() const { return data_; }
  Bytes size() const { return size_; }

 private:
  friend class CudaPool;
  CudaPool* pool_ = nullptr;
  void* stream_ = nullptr;
  std::byte* data_ = nullptr;
  Bytes size_ = 0;
};

class CudaPool {
 public:
  // Sizes are charged, and taken, as multiples of this.
  static constexpr Bytes kUnit = 512;
  static constexpr Bytes rounded(Bytes bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }

  // `name` is what messages call it.
  CudaPool(const Ledger& ledger, const std::string& name);
  CudaPool(const CudaPool&) = delete;
  CudaPool& operator=(const CudaPool&) = delete;
  ~CudaPool();

  // 1 byte or more, for work that the stream is given from now on, and for other streams that wait for this one. Throws
  // Error(out_of_budget) if the ledger refuses, Error(out_of_memory) if the device does; nothing has changed then.
  CudaBlock take(Bytes bytes, void* stream);

  Bytes live() const { return account_.live(); }
  Bytes peak() const { return account_.peak(); }
  // What the driver holds for the pool, in use or not.
  Bytes reserved() const { return pool_.reserved(); }

 private:
  friend class CudaBlock;
  void give_back(std::byte* data, Bytes size, void* stream) noexcept;

  Account account_;
  CudaDriverPool pool_;
};

// Waits for the device, and hands it what the pools of the process hold and do not use.
void trim_cuda_pools() noexcept;

}  // namespace ebb
