// SPDX-License-Identifier: Apache-2.0
// A convolution that keeps one number for each block of its input (Barley & Fröning 2024).
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "ebb/compress/block_pool.h"
#include "ebb/compress/pooled_gradient.h"
#include "ebb/torch/box_gradient.h"
#include "ebb/torch/codec_call.h"
#include "ebb/torch/convolution.h"

namespace ebb::torch {
namespace detail {

// As pool_blocks does, in torch's operations.
inline Tensor pooled_by_torch(const Tensor& x, const Sizes& block, Pooling pooling) {
  const std::size_t axes = block.size();
  const bool average = pooling == Pooling::average;
  constexpr bool ceil = true, count_padding = false;
  if (axes == 1) {
    return average ? at::avg_pool1d(x, block, block, 0, ceil, count_padding)
                   : at::max_pool1d(x, block, block, 0, 1, ceil);
  }
  if (axes == 2) {
    return average ? at::avg_pool2d(x, block, block, 0, ceil, count_padding)
                   : at::max_pool2d(x, block, block, 0, 1, ceil);
  }
  return average ? at::avg_pool3d(x, block, block, 0, ceil, count_padding)
                 : at::max_pool3d(x, block, block, 0, 1, ceil);
}

inline Tensor pooled_blocks(const Tensor& x, const Sizes& block, Pooling pooling) {
  const std::size_t axes = block.size();
  if (!x.is_cpu()) return pooled_by_torch(x, block, pooling);
  if (!is_codecs(x)) return pooled_blocks(x.to(at::kFloat), block, pooling).to(x.scalar_type());
  std::array<PoolAxis, 3> pools;
  Sizes size{x.size(0), x.size(1)};
  for (std::size_t i = 0; i < axes; ++i) {
    PoolAxis& axis = pools[3 - axes + i];
    axis = {x.sizes()[2 + i], block[i]};
    size.push_back(axis.blocks());
  }
  const Tensor dense = x.contiguous(), pooled = at::empty(size, x.options());
  with_number(x, [&]<class Number>(Number) {
    pool_blocks(workers(), x.size(0) * x.size(1), pools, pooling, dense.const_data_ptr<Number>(),
                pooled.data_ptr<Number>());
  });
  return pooled;
}

// Of an input of size `in` that is `pooled` with each block spread over its place.
inline Tensor pooled_gradient(const Tensor& pooled, const Tensor& gy, const Sizes& in,
                              const Sizes& block, const Convolution& conv) {
  if (!gy.is_cpu()) return box_gradient(pooled, gy, in, block, conv);
  if (!is_codecs(gy)) {
    return pooled_gradient(pooled.to(at::kFloat), gy.to(at::kFloat), in, block, conv)
        .to(gy.scalar_type());
  }
  ConvShape shape{gy.size(0), pooled.size(1), gy.size(1), conv.groups, {}};
  const std::size_t axes = block.size();
  for (std::size_t i = 0; i < axes; ++i) {
    shape.axes[3 - axes + i] = {in[i],          gy.sizes()[2 + i], conv.weight.sizes()[2 + i],
                                conv.stride[i], conv.padding[i],   conv.dilation[i],
                                block[i]};
  }
  const Tensor dense = gy.contiguous(), gw = at::empty(conv.weight.sizes(), gy.options());
  with_number(gy, [&]<class Number>(Number) {
    pooled_weight_gradient(workers(), shape, pooled.const_data_ptr<Number>(),
                           dense.const_data_ptr<Number>(), gw.data_ptr<Number>());
  });
  return gw;
}

class PooledConv : public ::torch::autograd::Function<PooledConv> {
 public:
  // The weight and the bias are those of the convolution, here for autograd to see.
  static Tensor forward(::torch::autograd::AutogradContext* context, const Tensor& x,
                        const Tensor& /*weight*/, const Tensor& /*bias*/, const Convolution& conv,
                        const Sizes& block, Pooling pooling) {
    context->save_for_backward({pooled_blocks(x, block, pooling), conv.weight});
    keep(context, conv);
    context->saved_data["block"] = block;
    context->saved_data["size"] = x.sizes().vec();
    context->saved_data["order"] = Order(x).name();
    return convolved(x, conv);
  }

  static ::torch::autograd::variable_list backward(::torch::autograd::AutogradContext* context,
                                                   ::torch::autograd::variable_list gradients) {
    refuse_second_derivatives("pooled_conv");
    const auto saved = context->get_saved_variables();
    Convolution conv = kept(context, saved[1]);
    const Tensor& gy = gradients[0];
    const Sizes size = context->saved_data["size"].toIntVector();
    Tensor gx, gw, gb;
    if (context->needs_input_grad(1)) {
      gw = pooled_gradient(saved[0], gy, Sizes(size.begin() + 2, size.end()),
                           context->saved_data["block"].toIntVector(), conv);
    }
    if (context->needs_input_grad(2)) {
      Sizes others{0};
      for (std::int64_t i = 2; i < gy.dim(); ++i) others.push_back(i);
      gb = gy.sum(others);
    }
    if (context->needs_input_grad(0)) {
      // Of the input only its size matters here; its order is told through the weight.
      const Order order(context->saved_data["order"].toInt());
      if (order.channels_last()) conv.weight = order.dense(conv.weight);
      const Tensor like = at::empty({1}, gy.options()).expand(size);
      gx = std::get<0>(convolution_gradients(gy, like, conv, {true, false, false}));
    }
    return {gx, gw, gb, Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace detail

// The output and the gradients of x and the bias are bit-identical to torch's convolution. The
// weight's is that of an input whose elements are replaced by the mean, or the largest, of their
// block: approximate. Blocks are one number for all axes or one for each; those at the end of an
// axis may be smaller. Blocks of 1: torch's own, which keeps x.
inline Tensor pooled_conv(const Tensor& x, const Convolution& conv, at::IntArrayRef block,
                          Pooling pooling = Pooling::average) {
  detail::check("pooled_conv", x, conv);
  detail::Sizes blocks = detail::each("pooled_conv: block", block, conv.axes());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i] < 1) {
      fail(ErrorCode::invalid_argument, "pooled_conv: a block of ", blocks[i],
           "; they are 1 or more");
    }
    blocks[i] = std::min(blocks[i], std::max<std::int64_t>(1, x.sizes()[2 + i]));
  }
  const Tensor cast_x = detail::as_autocast(x, x.device());
  const Convolution cast = detail::as_autocast(conv, x.device());
  if (x.numel() == 0 || c10::multiply_integers(blocks) == 1 || !detail::at_work({conv.weight})) {
    return detail::convolved(cast_x, cast);
  }
  return detail::PooledConv::apply(cast_x, cast.weight, detail::given(cast.bias, x), cast, blocks,
                                   pooling);
}

}  // namespace ebb::torch
