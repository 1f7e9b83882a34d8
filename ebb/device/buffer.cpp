// SPDX-License-Identifier: Apache-2.0
#include "ebb/device/buffer.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "ebb/core/zeros.h"

namespace ebb {

Buffer::Buffer(const Ledger& ledger, const std::string& name, Bytes bytes)
    : account_(ledger.open(name)), size_(bytes) {
  account_.charge(bytes);
  if (bytes == 0) return;
  void* data = nullptr;
  if (::posix_memalign(&data, static_cast<std::size_t>(kPage), static_cast<std::size_t>(bytes)) !=
      0) {
    refuse_memory(bytes, "the " + name);
  }
  data_ = static_cast<std::byte*>(data);
  std::memset(data_, 0, static_cast<std::size_t>(bytes));
}

Buffer::Buffer(Buffer&& other) noexcept
    : account_(std::move(other.account_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  // What was held before is given back now, not when `other` goes.
  Buffer old(std::move(other));
  std::swap(account_, old.account_);
  std::swap(data_, old.data_);
  std::swap(size_, old.size_);
  return *this;
}

Buffer::~Buffer() { std::free(data_); }

}  // namespace ebb
