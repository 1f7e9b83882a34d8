// SPDX-License-Identifier: Apache-2.0
#include "ebb/device/pinned_memory.h"

#include "ebb/device/cuda_call.cuh"

namespace ebb {

PinnedMemory::PinnedMemory(const Ledger& ledger, const std::string& name, Bytes bytes)
    : account_(ledger.open(name)) {
  account_.charge(bytes);
  if (bytes == 0) return;
  void* data = nullptr;
  const cudaError_t status =
      cudaHostAlloc(&data, static_cast<std::size_t>(bytes), cudaHostAllocPortable);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    account_.release(bytes);
    pageable_ = Buffer(ledger, name, bytes);
    return;
  }
  check_cuda(status, "cudaHostAlloc");
  data_ = static_cast<std::byte*>(data);
}

PinnedMemory::~PinnedMemory() {
  if (data_ != nullptr) cudaFreeHost(data_);
}

}  // namespace ebb
