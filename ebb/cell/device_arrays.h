// SPDX-License-Identifier: Apache-2.0
// Cuts memory of a CUDA device into arrays.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ebb/core/carver.h"

namespace ebb {

// Arrays lie at multiples of 256 bytes wherever they are: what cuBLAS chooses by their addresses is then the same in every plan.
inline std::byte* take_array(Carver& carver, Bytes bytes) {
  constexpr Bytes each = 256;
  return carver.take<std::byte>((bytes + each - 1) / each * each);
}
inline float* take_floats(Carver& carver, std::int64_t count) {
  return reinterpret_cast<float*>(take_array(carver, count * static_cast<Bytes>(sizeof(float))));
}
// Layouts are pointers into memory, and what only reads gets its memory as const.
inline std::byte* unconst(const std::byte* memory) { return const_cast<std::byte*>(memory); }

}  // namespace ebb
