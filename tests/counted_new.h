// SPDX-License-Identifier: Apache-2.0
// Counts every `new` of a program and its bytes, on any thread. Included by one file of a program.
#pragma once

#include <atomic>
#include <cstdlib>
#include <new>

namespace ebb::test {

inline std::atomic<long> allocations = 0;
inline std::atomic<long> allocated_bytes = 0;

}  // namespace ebb::test

// All other forms come down to these. The nothrow one is the standard library's for sorting.
void* operator new(std::size_t bytes) {
  ++ebb::test::allocations;
  ebb::test::allocated_bytes += static_cast<long>(bytes);
  if (void* const memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++ebb::test::allocations;
  ebb::test::allocated_bytes += static_cast<long>(bytes);
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
