// SPDX-License-Identifier: Apache-2.0
// Arrays in the memory of a CUDA device, for callers that do not use CUDA themselves: what a DeviceNetwork reads and writes.
#pragma once

#include <cstddef>
#include <ranges>
#include <span>
#include <string>
#include <utility>

#include "ebb/core/bytes.h"

namespace ebb {

// Why nothing can run on a CUDA device here; empty: it can.
std::string cuda_missing();
// The device that is current, how many there are, the current one's name with its memory ("NVIDIA H200, 139.8 GiB"), and what is not
// taken of that. They throw like DeviceMemory.
int cuda_device();
int cuda_device_count();
// Makes a device current for the calling thread.
void set_cuda_device(int device);
std::string cuda_device_name();
Bytes cuda_free_bytes();

// `bytes` bytes of the device that is current, all 0, at an address that is a multiple of 256. Throws Error(out_of_memory), Error(device)
// where CUDA fails, Error(unavailable) in a build without CUDA, Error(invalid_argument) for negative sizes.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(Bytes bytes);
  DeviceMemory(DeviceMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    DeviceMemory old(std::move(other));
    std::swap(data_, old.data_);
    std::swap(size_, old.size_);
    return *this;
  }
  ~DeviceMemory();

  std::byte* data() const { return data_; }
  Bytes size() const { return size_; }

  // Copies all of `from` to the start of the memory, or the start of the memory to all of `to`, after what `stream` has been given, a
  // cudaStream_t, and waits for it. Throw Error(invalid_argument) for more than there is.
  void upload(std::span<const std::byte> from, void* stream = nullptr);
  void download(std::span<std::byte> to, void* stream = nullptr) const;
  // The same for arrays and vectors of numbers.
  template <std::ranges::contiguous_range Range>
  void upload(const Range& from, void* stream = nullptr) {
    upload(std::span<const std::byte>(std::as_bytes(std::span(from))), stream);
  }
  template <std::ranges::contiguous_range Range>
  void download(Range&& to, void* stream = nullptr) const {
    download(std::span<std::byte>(std::as_writable_bytes(std::span(to))), stream);
  }

 private:
  std::byte* data_ = nullptr;
  Bytes size_ = 0;
};

}  // namespace ebb
