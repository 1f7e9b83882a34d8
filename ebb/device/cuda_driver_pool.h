// SPDX-License-Identifier: Apache-2.0
// A pool of the CUDA driver on the device that is current: what a CudaPool is made of.
#pragma once

#include "ebb/core/bytes.h"

namespace ebb {

class CudaDriverPool {
 public:
  CudaDriverPool();
  CudaDriverPool(const CudaDriverPool&) = delete;
  CudaDriverPool& operator=(const CudaDriverPool&) = delete;
  ~CudaDriverPool();

  // In the order of the stream. Null if the device has not as much; throws Error(device) where CUDA fails otherwise.
  void* take(Bytes bytes, void* stream);
  void give_back(void* data, Bytes bytes, void* stream) noexcept;
  // In use or not.
  Bytes reserved() const;
  // Hands the device what was given back by streams that have come so far.
  void trim() noexcept;

 private:
  void* pool_ = nullptr;
};

// Until the device has done all that it was given.
void wait_for_cuda() noexcept;

}  // namespace ebb
