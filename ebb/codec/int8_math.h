// SPDX-License-Identifier: Apache-2.0
// Eight-bit blocks: each block of kInt8Block values shares one scale, its largest size / 127. The
// error is at most half a scale, give or take the last bits of a float. For host and device alike.
#pragma once

#include <bit>
#include <cstdint>

namespace ebb {

inline constexpr std::int64_t kInt8Block = 64;

// The size of a float as a whole number: larger floats give larger ones, NaN the largest.
inline std::int32_t size_bits(float value) {
  return std::bit_cast<std::int32_t>(value) & 0x7FFFFFFF;
}
inline constexpr std::int32_t kInfiniteSize = 0x7F800000;

// Never denormal: a scale that has lost its last bits would not reach the largest value; so what is
// far below the least normal float becomes 0. And never so large that 127 of it are infinite, as the
// largest float's would be, rounded up.
inline float int8_scale(float largest) {
  const float scale = largest / 127.0F;
  return scale < 0x1p-126F ? 0x1p-126F : (scale > 0x1.020406p121F ? 0x1.020406p121F : scale);
}

// The nearest whole number, ties to even; |value| is at most 127 scales. Adding 1.5 * 2^23 leaves
// it in the low bits. Divides, because a product would be fused with the sum on some machines, and
// the last bit would depend on the machine.
inline std::int8_t to_int8(float value, float scale) {
  const auto bits = std::bit_cast<std::int32_t>(value / scale + 0x1.8p23F);
  return static_cast<std::int8_t>(bits - 0x4B400000);
}

inline float from_int8(std::int8_t value, float scale) { return static_cast<float>(value) * scale; }

}  // namespace ebb
