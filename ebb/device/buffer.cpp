// SPDX-License-Identifier: Apache-2.0
#include "ebb/device/buffer.h"

#include <cstdlib>
#include <utility>

#include "ebb/core/error.h"

namespace ebb {

Buffer::Buffer(const Ledger& ledger, std::string name, Bytes bytes)
    : account_(ledger.open(std::move(name))), size_(bytes) {
  account_.charge(bytes);
  if (bytes == 0) return;
  if (bytes > kUnlimited - kPage) fail(ErrorCode::out_of_memory, "no memory of that size: ", bytes);
  const Bytes pages = (bytes + kPage - 1) / kPage;
  const auto all = static_cast<std::size_t>(pages * kPage);
  data_ = static_cast<std::byte*>(std::aligned_alloc(static_cast<std::size_t>(kPage), all));
  if (data_ == nullptr) {
    fail(ErrorCode::out_of_memory, "the system has no ", format_bytes(bytes), " for us");
  }
  for (Bytes page = 0; page < pages; ++page) data_[page * kPage] = std::byte{0};
}

Buffer::Buffer(Buffer&& other) noexcept { *this = std::move(other); }

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(account_, other.account_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Buffer::~Buffer() { std::free(data_); }

}  // namespace ebb
