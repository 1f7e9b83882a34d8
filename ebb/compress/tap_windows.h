// SPDX-License-Identifier: Apache-2.0
// Which outputs of a convolution meet which block of its input, along one axis.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ebb/compress/conv_shape.h"

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

// The windows of all taps and blocks. Where the stride divides a block's size they are evenly spaced:
// a division for each tap is enough.
class AxisWindows {
 public:
  explicit AxisWindows(const ConvAxis& axis) : axis_(axis) {
    if (axis.block % axis.stride == 0) {
      run_ = axis.block / axis.stride;
      whole_ = axis.in / axis.block;
    }
    edges_.reserve(static_cast<std::size_t>(axis.kernel));
    for (std::int64_t tap = 0; tap < axis.kernel; ++tap) {
      edges_.push_back({first_output(axis, tap, 0), first_output(axis, tap, axis.in)});
    }
  }

  // Blocks [0, whole) have windows of `run` outputs each, were there outputs without end.
  std::int64_t run() const { return run_; }
  std::int64_t whole() const { return whole_; }
  // Block 0's first output, perhaps below 0.
  std::int64_t start(std::int64_t tap) const { return edges_[static_cast<std::size_t>(tap)].from; }

  // The outputs that `tap` takes into `block`, which ends where the input does.
  TapWindow operator()(std::int64_t tap, std::int64_t block) const {
    const TapWindow edges = edges_[static_cast<std::size_t>(tap)];
    const bool last = (block + 1) * axis_.block >= axis_.in;
    if (run_ == 0) {
      return within(first_output(axis_, tap, block * axis_.block),
                    last ? edges.to : first_output(axis_, tap, (block + 1) * axis_.block));
    }
    const std::int64_t from = edges.from + block * run_;
    return within(from, last ? edges.to : from + run_);
  }

 private:
  TapWindow within(std::int64_t from, std::int64_t to) const {
    return {std::clamp<std::int64_t>(from, 0, axis_.out),
            std::clamp<std::int64_t>(to, 0, axis_.out)};
  }

  ConvAxis axis_;
  std::int64_t run_ = 0, whole_ = 0;
  std::vector<TapWindow> edges_;  // of the whole input, by tap
};

// The block that `tap` takes an output to, or -1 for the padding.
inline std::int64_t tap_block(const ConvAxis& axis, std::int64_t tap, std::int64_t output) {
  const std::int64_t at = output * axis.stride + tap * axis.dilation - axis.padding;
  return at < 0 || at >= axis.in ? -1 : at / axis.block;
}

}  // namespace ebb
