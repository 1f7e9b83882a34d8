// SPDX-License-Identifier: Apache-2.0
// The sizes of a convolution whose input is kept as one number for each block of neighbours.
#pragma once

#include <array>
#include <cstdint>

namespace ebb {

// Output i meets input i * stride + tap * dilation - padding at each tap 0 <= tap < kernel.
struct ConvAxis {
  std::int64_t in = 1, out = 1, kernel = 1, stride = 1;
  std::int64_t padding = 0;  // before the input; what lies behind it follows from `out`
  std::int64_t dilation = 1;
  std::int64_t block = 1;  // neighbours that share one number; the last block may have fewer

  std::int64_t blocks() const { return (in + block - 1) / block; }
};

// Input [batch, in_channels, in...], output [batch, out_channels, out...], weights [out_channels,
// in_channels / groups, kernel...]; all contiguous. Outermost axis first: a convolution of fewer
// than three leaves the first ones as they are.
struct ConvShape {
  std::int64_t batch = 1, in_channels = 1, out_channels = 1, groups = 1;
  std::array<ConvAxis, 3> axes;

  std::int64_t taps() const { return axes[0].kernel * axes[1].kernel * axes[2].kernel; }
  std::int64_t outputs() const { return axes[0].out * axes[1].out * axes[2].out; }
  std::int64_t blocks() const { return axes[0].blocks() * axes[1].blocks() * axes[2].blocks(); }
  std::int64_t group_in() const { return in_channels / groups; }
  std::int64_t group_out() const { return out_channels / groups; }
};

// Throws Error(invalid_argument) for sizes below 1, channels that groups do not divide, and more
// outputs than some padding behind the input could give: at most that before it, or what "same"
// takes, dilation * (kernel - 1).
void check(const ConvShape& shape);

}  // namespace ebb
