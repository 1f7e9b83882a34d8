// SPDX-License-Identifier: Apache-2.0
#include "ebb/compress/conv_shape.h"

#include <algorithm>

#include "ebb/core/error.h"

namespace ebb {
namespace {

// Far below where a product of a few sizes would no longer be a 64-bit number.
constexpr std::int64_t kMost = std::int64_t{1} << 31;

void check_size(const char* what, std::int64_t value, std::int64_t least = 1) {
  if (value < least || value > kMost) {
    fail(ErrorCode::invalid_argument, "convolution: ", what, " is ", value, "; it must be ", least,
         " to ", kMost);
  }
}

void check_axis(const ConvAxis& axis) {
  check_size("the input's size", axis.in);
  check_size("the output's size", axis.out);
  check_size("the kernel's size", axis.kernel);
  check_size("stride", axis.stride);
  check_size("padding", axis.padding, 0);
  check_size("dilation", axis.dilation);
  check_size("block", axis.block);
  const std::int64_t reach = axis.dilation * (axis.kernel - 1);
  const std::int64_t room = axis.in + axis.padding + std::max(axis.padding, reach) - reach - 1;
  const std::int64_t most = room < 0 ? 0 : room / axis.stride + 1;
  if (axis.out > most) {
    fail(ErrorCode::invalid_argument, "convolution: the output's size is ", axis.out,
         "; with an input of ", axis.in, ", kernel ", axis.kernel, ", stride ", axis.stride,
         ", padding ", axis.padding, " and dilation ", axis.dilation, " it is at most ", most);
  }
}

}  // namespace

void check(const ConvShape& shape) {
  check_size("batch", shape.batch);
  check_size("in_channels", shape.in_channels);
  check_size("out_channels", shape.out_channels);
  check_size("groups", shape.groups);
  if (shape.in_channels % shape.groups != 0 || shape.out_channels % shape.groups != 0) {
    fail(ErrorCode::invalid_argument, "convolution: ", shape.groups, " groups of ",
         shape.in_channels, " and ", shape.out_channels, " channels; groups must divide both");
  }
  for (const ConvAxis& axis : shape.axes) check_axis(axis);
}

}  // namespace ebb
