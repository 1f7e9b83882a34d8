// SPDX-License-Identifier: Apache-2.0
// A batch norm that keeps eight bits of each element of its input.
#pragma once

#include <torch/torch.h>

#include <cmath>
#include <cstdint>
#include <tuple>
#include <utility>

#include "ebb/compress/int8_rows.h"
#include "ebb/torch/codec_call.h"
#include "ebb/torch/norm.h"

namespace ebb::torch {
namespace detail {

inline ChannelShape channel_shape(const Tensor& dense, const Order& order) {
  const std::int64_t channels = dense.size(1), rows = dense.numel() / channels;
  if (order.channels_last()) return {rows, channels, 1};
  return {dense.size(0), channels, rows / dense.size(0)};
}

// One for each channel, to be added to or multiplied with a tensor of that many dimensions.
inline Tensor per_channel(const Tensor& values, std::int64_t dimensions) {
  Sizes shape(static_cast<std::size_t>(dimensions), 1);
  shape[1] = values.numel();
  return values.view(shape);
}

// Codes and scales of how far a dense x is from the centre of its channel.
inline std::pair<Tensor, Tensor> int8_channels(const Tensor& x, const Order& order,
                                               const Tensor& centre) {
  if (is_codecs(x)) {
    const Tensor codes = at::empty_like(x, x.options().dtype(at::kChar));
    const Tensor scales = at::empty({x.size(1)}, x.options().dtype(at::kFloat));
    const Tensor mean = centre.to(x.scalar_type()).contiguous();
    with_number(x, [&]<class Number>(Number) {
      int8_channels_encode(workers(), channel_shape(x, order), x.const_data_ptr<Number>(),
                           mean.const_data_ptr<Number>(), codes.data_ptr<std::int8_t>(),
                           scales.data_ptr<float>());
    });
    return {codes, scales};
  }
  const Tensor away = x.to(at::kFloat) - per_channel(centre.to(at::kFloat), x.dim());
  Sizes others{0};
  for (std::int64_t i = 2; i < x.dim(); ++i) others.push_back(i);
  const Tensor scales =
      away.abs().amax(others).div_(127).clamp_(std::ldexp(1.0, -126), std::ldexp(1.0, 121));
  return {away.div(per_channel(scales, x.dim())).round_().to(at::kChar), scales};
}

inline Tensor from_int8_channels(const Tensor& codes, const Order& order, const Tensor& scales,
                                 const Tensor& centre, at::ScalarType dtype) {
  const Tensor x = at::empty_like(codes, codes.options().dtype(dtype));
  if (is_codecs(x)) {
    const Tensor mean = centre.to(dtype).contiguous();
    with_number(x, [&]<class Number>(Number) {
      int8_channels_decode(workers(), channel_shape(x, order), codes.const_data_ptr<std::int8_t>(),
                           scales.const_data_ptr<float>(), mean.const_data_ptr<Number>(),
                           x.data_ptr<Number>());
    });
    return x;
  }
  x.copy_(codes.mul(per_channel(scales, x.dim())) + per_channel(centre.to(at::kFloat), x.dim()));
  return x;
}

class BatchNormInt8 : public ::torch::autograd::Function<BatchNormInt8> {
 public:
  // The weight and the bias are those of the norm, here for autograd to see.
  static Tensor forward(::torch::autograd::AutogradContext* context, const Tensor& x,
                        const Tensor& /*weight*/, const Tensor& /*bias*/, const Norm& norm) {
    const Normed found = normed(x, norm);
    const Order order(x);
    const Tensor& centre = norm.uses_batch() ? found.mean : norm.running_mean;
    const auto [codes, scales] = int8_channels(order.dense(x), order, centre);
    keep(context, {codes, scales}, norm, found);
    context->saved_data["order"] = order.name();
    context->saved_data["dtype"] = static_cast<std::int64_t>(x.scalar_type());
    return found.out;
  }

  static ::torch::autograd::variable_list backward(::torch::autograd::AutogradContext* context,
                                                   ::torch::autograd::variable_list gradients) {
    refuse_second_derivatives("batch_norm_int8");
    const auto saved = context->get_saved_variables();
    const auto [norm, found] = kept(context, saved);
    const Tensor& centre = norm.uses_batch() ? found.mean : norm.running_mean;
    const Tensor x =
        from_int8_channels(saved[0], Order(context->saved_data["order"].toInt()), saved[1], centre,
                           static_cast<at::ScalarType>(context->saved_data["dtype"].toInt()));
    auto [gx, gw, gb] = norm_gradients(
        gradients[0], x, norm, found,
        {context->needs_input_grad(0), context->needs_input_grad(1), context->needs_input_grad(2)});
    return {gx, gw, gb, Tensor()};
  }
};

}  // namespace detail

// The output is bit-identical to torch's batch_norm. Gradients are those of an input rounded to 127ths
// of the largest distance from the mean of its channel: approximate, the bias's exact.
inline Tensor batch_norm_int8(const Tensor& x, const Norm& norm) {
  detail::check("batch_norm_int8", x, norm);
  if (x.numel() == 0 || !detail::at_work({x, norm.weight, norm.bias})) {
    return detail::normed(x, norm).out;
  }
  return detail::BatchNormInt8::apply(x, detail::given(norm.weight, x), detail::given(norm.bias, x),
                                      norm);
}

}  // namespace ebb::torch
