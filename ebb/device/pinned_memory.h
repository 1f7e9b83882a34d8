// SPDX-License-Identifier: Apache-2.0
// Host memory that a CUDA device copies to and from by itself, charged to a ledger; where the system gives none, common memory, through
// which copies are slower and make the caller wait.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "ebb/device/buffer.h"
#include "ebb/device/ledger.h"

namespace ebb {

class PinnedMemory {
 public:
  PinnedMemory() = default;
  // As a Buffer (ebb/device/buffer.h); its content is not set.
  PinnedMemory(const Ledger& ledger, const std::string& name, Bytes bytes);
  PinnedMemory(PinnedMemory&& other) noexcept
      : account_(std::move(other.account_)),
        pageable_(std::move(other.pageable_)),
        data_(std::exchange(other.data_, nullptr)) {}
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    PinnedMemory old(std::move(other));
    std::swap(account_, old.account_);
    std::swap(pageable_, old.pageable_);
    std::swap(data_, old.data_);
    return *this;
  }
  // Nothing may be under way any more.
  ~PinnedMemory();

  std::byte* data() const { return pageable_.size() > 0 ? pageable_.data() : data_; }
  bool is_pinned() const { return pageable_.size() == 0; }

 private:
  Account account_;
  Buffer pageable_;
  std::byte* data_ = nullptr;
};

}  // namespace ebb
