// SPDX-License-Identifier: Apache-2.0
// A ReLU that keeps one bit of each element.
#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "ebb/compress/sign_bits.h"
#include "ebb/torch/codec_call.h"

namespace ebb::torch {
namespace detail {

inline Tensor powers_of_two(const at::TensorOptions& options) {
  return at::pow(2, at::arange(8, options.dtype(at::kLong))).to(at::kByte);
}

// Of a dense tensor, in the order of its memory; as ebb::sign_bits lays them out.
inline Tensor relu_bits_of(const Tensor& dense) {
  const std::int64_t count = dense.numel();
  const Tensor bits = at::empty({sign_bytes(count)}, dense.options().dtype(at::kByte));
  if (is_codecs(dense)) {
    with_number(dense, [&]<class Number>(Number) {
      sign_bits(workers(), count, dense.const_data_ptr<Number>(), Through::positive_or_nan,
                Number{0}, Number{0}, bits.data_ptr<std::uint8_t>());
    });
    return bits;
  }
  const Tensor passes = Order::flat(dense).le(0).logical_not_().to(at::kByte);
  const Tensor rows = at::constant_pad_nd(passes, {0, 8 * bits.numel() - count}).view({-1, 8});
  return rows.mul(powers_of_two(bits.options())).sum(1, /*keepdim=*/false, at::kByte);
}

// gy where the bit is set, 0 elsewhere.
inline Tensor masked_by(const Tensor& bits, const Tensor& dense_gy) {
  const std::int64_t count = dense_gy.numel();
  const Tensor gx = at::empty_like(dense_gy);
  if (is_codecs(dense_gy)) {
    with_number(dense_gy, [&]<class Number>(Number) {
      masked(workers(), count, bits.const_data_ptr<std::uint8_t>(),
             dense_gy.const_data_ptr<Number>(), gx.data_ptr<Number>());
    });
    return gx;
  }
  const Tensor passes = bits.unsqueeze(1).bitwise_and(powers_of_two(bits.options())).ne(0);
  Order::flat(gx).copy_(at::where(passes.flatten().slice(0, 0, count), Order::flat(dense_gy),
                                  at::zeros({}, dense_gy.options())));
  return gx;
}

class ReluBits : public ::torch::autograd::Function<ReluBits> {
 public:
  static Tensor forward(::torch::autograd::AutogradContext* context, Tensor x, bool in_place) {
    const Order order(x);
    context->save_for_backward({relu_bits_of(order.dense(x))});
    context->saved_data["order"] = order.name();
    if (!in_place) return at::relu(x);
    at::relu_(x);
    context->mark_dirty({x});
    return x;
  }

  static ::torch::autograd::variable_list backward(::torch::autograd::AutogradContext* context,
                                                   ::torch::autograd::variable_list gradients) {
    refuse_second_derivatives("relu_bits");
    const Order order(context->saved_data["order"].toInt());
    return {masked_by(context->get_saved_variables()[0], order.dense(gradients[0])), Tensor()};
  }
};

}  // namespace detail

// Output and gradient are bit-identical to torch's relu. For one whose output nothing else keeps: where
// a plain convolution keeps it anyway, torch's relu keeps nothing more.
inline Tensor relu_bits(const Tensor& x) {
  return detail::at_work({x}) ? detail::ReluBits::apply(x, false) : at::relu(x);
}
// In place.
inline Tensor relu_bits_(Tensor x) {
  return detail::at_work({x}) ? detail::ReluBits::apply(x, true) : at::relu_(x);
}

}  // namespace ebb::torch
