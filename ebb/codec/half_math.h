// SPDX-License-Identifier: Apache-2.0
// Two-byte floats by their bits, rounded to nearest, ties to even. For host and device alike.
#pragma once

#include <bit>
#include <cstdint>

namespace ebb {

inline std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  // Rounding up could make a NaN infinite.
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return static_cast<std::uint16_t>((bits >> 16) | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

inline float from_bf16(std::uint16_t half) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
}

inline std::uint16_t to_fp16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000);
  const std::uint32_t size = bits & 0x7FFFFFFF;
  if (size > 0x7F800000) return static_cast<std::uint16_t>(sign | 0x7E00);
  if (size >= 0x477FF000) return static_cast<std::uint16_t>(sign | 0x7C00);  // rounds beyond 65504
  if (size < 0x38800000) {
    // Below 2^-14: adding 0.5 leaves the multiples of 2^-24 in the low bits, rounded by the sum.
    const float shifted = std::bit_cast<float>(size) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000));
  }
  const std::uint32_t rounded = size + 0xFFF + ((size >> 13) & 1);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000) >> 13));
}

inline float from_fp16(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16;
  const std::uint32_t size = half & 0x7FFF;
  if (size >= 0x7C00) return std::bit_cast<float>(sign | 0x7F800000 | ((size & 0x3FF) << 13));
  if (size < 0x0400) {
    const float small = static_cast<float>(size) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(small));
  }
  return std::bit_cast<float>(sign | ((size << 13) + 0x38000000));
}

}  // namespace ebb
