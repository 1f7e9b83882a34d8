// SPDX-License-Identifier: Apache-2.0
// Vectors that begin with a cache line: what is read a vector at a time would else lie in two lines
// each time.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace ebb {

template <class T>
struct AlignedAllocator {
  using value_type = T;  // NOLINT(readability-identifier-naming): the standard library's name
  static constexpr std::align_val_t kAlignment{64};
  AlignedAllocator() = default;
  template <class Other>
  explicit AlignedAllocator(const AlignedAllocator<Other>& /*other*/) {}
  T* allocate(std::size_t count) {
    if (count > static_cast<std::size_t>(-1) / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T*>(::operator new(count * sizeof(T), kAlignment));
  }
  void deallocate(T* memory, std::size_t /*count*/) { ::operator delete(memory, kAlignment); }
  template <class Other>
  bool operator==(const AlignedAllocator<Other>& /*other*/) const {
    return true;
  }
};

template <class T>
using AlignedVector = std::vector<T, AlignedAllocator<T>>;

}  // namespace ebb
