// SPDX-License-Identifier: Apache-2.0
// Host memory charged to a ledger, one block at a time. What lies where inside it is the arena's
// business or the owner's.
#pragma once

#include <cstddef>
#include <span>

#include "ebb/device/ledger.h"

namespace ebb {

// Addresses and sizes at which files can be read and written without the page cache.
inline constexpr Bytes kPage = 4096;

// Owns `bytes` bytes at an address that is a multiple of kPage, charged while they are held. All
// bytes are 0 and touched, so that using them faults no pages.
class Buffer {
 public:
  Buffer() = default;
  // `name` is what messages call it, after "the". Throws Error(out_of_budget) if the ledger refuses,
  // Error(out_of_memory) if the system does, Error(invalid_argument) for a negative size.
  Buffer(const Ledger& ledger, const std::string& name, Bytes bytes);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::byte* data() const { return data_; }
  Bytes size() const { return size_; }
  std::span<std::byte> at(Bytes offset, Bytes bytes) const {
    return {data_ + offset, static_cast<std::size_t>(bytes)};
  }

 private:
  Account account_;
  std::byte* data_ = nullptr;
  Bytes size_ = 0;
};

}  // namespace ebb
