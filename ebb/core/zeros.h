// SPDX-License-Identifier: Apache-2.0
// Vectors that may be large: out of memory says how much was asked for, and for what.
#pragma once

#include <cstddef>
#include <new>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "ebb/core/aligned.h"
#include "ebb/core/bytes.h"
#include "ebb/core/error.h"

namespace ebb {

// "the system has no 4 GiB for the gradient"
[[noreturn]] inline void refuse_memory(Bytes bytes, std::string_view what) {
  fail(ErrorCode::out_of_memory, "the system has no ", format_bytes(bytes), " for ", what);
}

// `count` zeros. Throws Error(out_of_memory).
template <class T, class Vector = std::vector<T>>
Vector zeros(std::size_t count, std::string_view what) {
  try {
    return Vector(count);
  } catch (const std::bad_alloc&) {
    refuse_memory(scale_bytes(sizeof(T), static_cast<Bytes>(count)), what);
  } catch (const std::length_error&) {
    refuse_memory(scale_bytes(sizeof(T), static_cast<Bytes>(count)), what);
  }
}

// The same, beginning with a cache line.
template <class T>
AlignedVector<T> aligned_zeros(std::size_t count, std::string_view what) {
  return zeros<T, AlignedVector<T>>(count, what);
}

}  // namespace ebb
