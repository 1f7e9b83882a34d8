// SPDX-License-Identifier: Apache-2.0
// The weight gradient from a pooled input in torch's operations, for other devices than a CPU: as
// ebb/compress/pooled_gradient.h has it, without spreading the input. The outputs that one tap takes
// to one block are box sums of gy; the gradient is a convolution of those with the pooled input,
// with strides of a block and its taps in reverse.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "ebb/torch/codec_call.h"
#include "ebb/torch/convolution.h"

namespace ebb::torch::detail {

// `count` blocks of `width` along an axis from `start` on, which are the pooled copy's from `first`
// on: those of full width, or the smaller one at the end.
struct Part {
  std::int64_t start, width, count, first;
};

inline std::vector<Part> parts(std::int64_t size, std::int64_t block) {
  const std::int64_t whole = size / block, rest = size % block;
  std::vector<Part> found{{0, block, whole, 0}};
  if (rest > 0) found.push_back({whole * block, rest, 1, whole});
  return found;
}

// The sums of `box` outputs along an axis, from the one at `begin` on, are read at each of `count`
// blocks, box apart, by the convolution's taps, `dilation` apart. Tap u of the convolution is tap
// order[u] here. First, zeros are put between the outputs, `apart` places from each to the next.
struct BoxAxis {
  BoxAxis(const Part& part, std::int64_t kernel, std::int64_t stride, std::int64_t padding,
          std::int64_t dilation_)
      : box(part.width), count(part.count) {
    if (stride > 1 && part.width % stride == 0 && part.start % stride == 0) {
      // Each tap reads width / stride neighbours; taps that read the same ones are one here.
      for (std::int64_t u = 0; u < kernel; ++u) {
        const std::int64_t shift = padding - dilation_ * u;  // rounded up
        order.push_back((shift > 0 ? shift + stride - 1 : shift) / stride);
      }
      const auto [least, most] = std::minmax_element(order.begin(), order.end());
      const std::int64_t first = *least;
      taps = *most - first + 1;
      for (std::int64_t& place : order) place -= first;
      box /= stride;
      begin = part.start / stride + first;
    } else {
      for (std::int64_t u = kernel; u-- > 0;) order.push_back(u);
      taps = kernel;
      dilation = dilation_;
      apart = stride;
      begin = part.start + padding - dilation_ * (kernel - 1);
    }
  }

  // Only every box-th sum is read: the others need not be there.
  bool lone() const { return taps == 1; }
  // Of the outputs that are read.
  std::int64_t length() const { return (count - 1) * box + (taps - 1) * dilation + box; }

  std::int64_t begin = 0, box, count, taps = 0, dilation = 1, apart = 1;
  Sizes order;
};

// The outputs that `axis` reads, zeros where there are none; undefined if there are none at all.
inline Tensor cut(const Tensor& gy, std::int64_t dim, const BoxAxis& axis) {
  const std::int64_t end = axis.begin + axis.length(), apart = axis.apart;
  const std::int64_t low = std::max<std::int64_t>(0, (axis.begin + apart - 1) / apart);
  const std::int64_t high = std::min(gy.size(dim), (end + apart - 1) / apart);
  if (end <= 0 || low >= high) return Tensor();
  Tensor found = gy.narrow(dim, low, high - low);
  if (apart > 1) {
    Sizes sizes = found.sizes().vec();
    std::int64_t& size = sizes[static_cast<std::size_t>(dim)];
    size = (size - 1) * apart + 1;
    const Tensor wide = at::zeros(sizes, gy.options());
    wide.slice(dim, 0, size, apart).copy_(found);
    found = wide;
  }
  const std::int64_t lead = low * apart - axis.begin;
  Sizes padding(static_cast<std::size_t>(2 * (gy.dim() - 1 - dim)), 0);
  padding.push_back(lead);
  padding.push_back(axis.length() - lead - found.size(dim));
  return at::constant_pad_nd(found, padding);
}

// Of the blocks of one shape; undefined where no output reads them.
inline Tensor region_gradient(Tensor pooled, const Tensor& gy, const std::vector<Part>& region,
                              const std::vector<BoxAxis>& axes, std::int64_t groups) {
  Tensor sums = gy;
  Sizes box, step, stride, dilation, none;
  Sizes shape{pooled.size(1), gy.size(1) / groups};
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto dim = static_cast<std::int64_t>(i) + 2;
    pooled = pooled.narrow(dim, region[i].first, region[i].count);
    sums = cut(sums, dim, axes[i]);
    if (!sums.defined()) return Tensor();
    box.push_back(axes[i].box);
    step.push_back(axes[i].lone() ? axes[i].box : 1);
    stride.push_back(axes[i].lone() ? 1 : axes[i].box);
    dilation.push_back(axes[i].dilation);
    none.push_back(0);
    shape.push_back(axes[i].taps);
  }
  constexpr bool ceil = false, count_padding = true;
  constexpr std::int64_t sum = 1;
  sums = axes.size() == 2 ? at::avg_pool2d(sums, box, step, 0, ceil, count_padding, sum)
                          : at::avg_pool3d(sums, box, step, 0, ceil, count_padding, sum);
  Tensor gw = std::get<1>(
      at::convolution_backward(pooled, sums, at::empty({1}, gy.options()).expand(shape),
                               std::nullopt, stride, none, dilation,
                               /*transposed=*/false, none, groups, {false, true, false}));
  // The channels are the wrong way round, within each group.
  gw = gw.unflatten(0, {groups, -1}).transpose(1, 2).flatten(0, 1);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    gw = gw.index_select(static_cast<std::int64_t>(i) + 2,
                         at::tensor(axes[i].order).to(gw.device()));
  }
  return gw.contiguous();
}

// gy and pooled in the order of pooled_weight_gradient.
inline Tensor box_gradient(const Tensor& pooled, const Tensor& gy, const Sizes& in,
                           const Sizes& block, const Convolution& conv) {
  if (in.size() == 1) {  // as a map of one row
    return box_gradient(pooled.unsqueeze(2), gy.unsqueeze(2), {1, in[0]}, {1, block[0]},
                        Convolution(conv.weight.unsqueeze(2), {}, {1, conv.stride[0]},
                                    {0, conv.padding[0]}, {1, conv.dilation[0]}, conv.groups))
        .squeeze(2);
  }
  Tensor sum = at::zeros(conv.weight.sizes(), gy.options());
  std::vector<std::vector<Part>> regions{{}};
  for (std::size_t i = 0; i < in.size(); ++i) {
    std::vector<std::vector<Part>> longer;
    for (const std::vector<Part>& region : regions) {
      for (const Part& part : parts(in[i], block[i])) {
        longer.push_back(region);
        longer.back().push_back(part);
      }
    }
    regions = std::move(longer);
  }
  for (const std::vector<Part>& region : regions) {
    std::vector<BoxAxis> axes;
    for (std::size_t i = 0; i < in.size(); ++i) {
      axes.emplace_back(region[i], conv.weight.sizes()[2 + i], conv.stride[i], conv.padding[i],
                        conv.dilation[i]);
    }
    const Tensor found = region_gradient(pooled, gy, region, axes, conv.groups);
    if (found.defined()) sum += found;
  }
  return sum;
}

}  // namespace ebb::torch::detail
