// SPDX-License-Identifier: Apache-2.0
// Eight-bit blocks: each block of kInt8Block values shares one scale, its largest size / 127. The
// error is at most half a scale. For host and device alike.
#pragma once

#include <cstdint>

namespace ebb {

inline constexpr std::int64_t kInt8Block = 64;

inline float int8_scale(float largest) { return largest / 127.0F; }

inline std::int8_t to_int8(float value, float inverse_scale) {
  const float scaled = value * inverse_scale;
  const float rounded = scaled < 0 ? scaled - 0.5F : scaled + 0.5F;
  const auto whole = static_cast<std::int32_t>(rounded);
  return static_cast<std::int8_t>(whole > 127 ? 127 : (whole < -127 ? -127 : whole));
}

inline float from_int8(std::int8_t value, float scale) { return static_cast<float>(value) * scale; }

}  // namespace ebb
