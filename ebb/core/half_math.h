// SPDX-License-Identifier: Apache-2.0
// Two-byte floats, rounded to nearest, ties to even. A NaN stays a NaN, quiet, with its sign. For host and device alike.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace ebb {

// All cases are computed and one is chosen by masks: a branch, and even a conditional expression
// around a sum, would keep the loops over these from becoming vector code.
inline std::uint32_t choose(bool which, std::uint32_t if_true, std::uint32_t if_false) {
  const std::uint32_t mask = 0U - static_cast<std::uint32_t>(which);
  return (if_true & mask) | (if_false & ~mask);
}

inline std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = bits + 0x7FFF + ((bits >> 16) & 1);
  // Rounding up could make a NaN infinite.
  const bool nan = (bits & 0x7FFFFFFF) > 0x7F800000;
  return static_cast<std::uint16_t>(choose(nan, bits | 0x400000, rounded) >> 16);
}

inline float from_bf16(std::uint16_t half) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
}

// The sum rounds. Beside 2^15 times the value's power of two, four times the value leaves its number
// of fp16 steps in the low bits; below 2^-14 the steps shrink no more. The products are by powers of
// two: exact, so that it is no matter whether a machine fuses one with the sum, and infinite where
// the value is beyond the range.
inline std::uint16_t to_fp16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000;
  const std::uint32_t size = bits & 0x7FFFFFFF;
  const std::uint32_t exponent = std::max<std::uint32_t>(size & 0x7F800000, 0x38800000);
  const float four_times = std::bit_cast<float>(size) * 0x1p112F * 0x1p-110F;
  const auto sum =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(exponent + 0x07800000) + four_times);
  const std::uint32_t rounded = ((sum >> 13) & 0x7C00) + (sum & 0x0FFF);
  return static_cast<std::uint16_t>(sign | choose(size > 0x7F800000, 0x7E00, rounded));
}

inline float from_fp16(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16;
  const std::uint32_t size = half & 0x7FFF;
  // With the largest exponent 31 made 255, that of infinity and NaN, and scaled back.
  const float normal = std::bit_cast<float>((size << 13) + 0x70000000) * 0x1p-112F;
  // Below 2^-14: multiples of 2^-24 in the low bits of 0.5.
  const float small = std::bit_cast<float>(size | 0x3F000000) - 0.5F;
  return std::bit_cast<float>(sign | choose(size < 0x0400, std::bit_cast<std::uint32_t>(small),
                                            std::bit_cast<std::uint32_t>(normal)));
}

}  // namespace ebb
