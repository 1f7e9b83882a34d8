// SPDX-License-Identifier: Apache-2.0
// Cuts one piece of memory into arrays, each aligned for vectors. Without memory it only counts.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ebb/core/bytes.h"

namespace ebb {

class Carver {
 public:
  static constexpr Bytes kAlignment = 64;
  explicit Carver(std::byte* memory) : memory_(memory) {}

  template <class Item>
  Item* take(std::int64_t count) {
    const Bytes start = used_;
    used_ += (count * static_cast<Bytes>(sizeof(Item)) + kAlignment - 1) / kAlignment * kAlignment;
    return memory_ == nullptr ? nullptr : reinterpret_cast<Item*>(memory_ + start);
  }
  Bytes used() const { return used_; }

 private:
  std::byte* memory_;
  Bytes used_ = 0;
};

}  // namespace ebb
