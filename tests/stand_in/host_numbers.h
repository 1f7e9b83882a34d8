// SPDX-License-Identifier: Apache-2.0
// Numbers in the arrays of a device that the host plays.
#pragma once

#include <cstdint>

#include "ebb/cell/gated.h"
#include "ebb/core/half_math.h"

namespace ebb::test {

inline float read(GatedNumber number, const void* data, std::int64_t i) {
  if (bytes_of(number) == 4) return static_cast<const float*>(data)[i];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[i];
  return number == GatedNumber::bf16 ? from_bf16(bits) : from_fp16(bits);
}

inline void write(GatedNumber number, void* data, std::int64_t i, float value) {
  if (bytes_of(number) == 4) {
    static_cast<float*>(data)[i] = value;
  } else {
    static_cast<std::uint16_t*>(data)[i] =
        number == GatedNumber::bf16 ? to_bf16(value) : to_fp16(value);
  }
}

}  // namespace ebb::test
