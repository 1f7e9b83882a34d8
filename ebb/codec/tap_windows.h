// SPDX-License-Identifier: Apache-2.0
// Which outputs of a convolution meet which block of its input, along one axis.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ebb/codec/conv_shape.h"

namespace ebb {

constexpr std::int64_t divided_up(std::int64_t value, std::int64_t by) {
  return value >= 0 ? (value + by - 1) / by : -(-value / by);
}

// Outputs [from, to).
struct TapWindow {
  std::int64_t from = 0, to = 0;
};

// The first output, perhaps below 0, that `tap` takes to position `input` or beyond.
inline std::int64_t first_output(const ConvAxis& axis, std::int64_t tap, std::int64_t input) {
  return divided_up(input + axis.padding - tap * axis.dilation, axis.stride);
}

// The outputs that `tap` takes into `block`, whose last position is the input's at most.
inline TapWindow tap_window(const ConvAxis& axis, std::int64_t tap, std::int64_t block) {
  const std::int64_t end = std::min((block + 1) * axis.block, axis.in);
  const auto within = [&](std::int64_t i) { return std::clamp<std::int64_t>(i, 0, axis.out); };
  return {within(first_output(axis, tap, block * axis.block)),
          within(first_output(axis, tap, end))};
}

// The block that `tap` takes an output to, or -1 for the padding.
inline std::int64_t tap_block(const ConvAxis& axis, std::int64_t tap, std::int64_t output) {
  const std::int64_t at = output * axis.stride + tap * axis.dilation - axis.padding;
  return at < 0 || at >= axis.in ? -1 : at / axis.block;
}

}  // namespace ebb
