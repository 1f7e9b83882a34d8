// SPDX-License-Identifier: Apache-2.0
// A convolution of relu(batch_norm(x)) that keeps x alone. Torch keeps two maps there: x for the
// norm, and the ReLU's output for the ReLU and the convolution. The second follows from the first,
// so backward computes it again, by the operations of the forward pass: a norm and a ReLU more, and
// no approximation. One node, since a node of torch's own cannot be told in C++ to keep less.
#pragma once

#include <torch/torch.h>

#include "ebb/torch/codec_call.h"
#include "ebb/torch/convolution.h"
#include "ebb/torch/norm.h"

namespace ebb::torch {
namespace detail {

class NormReluConv : public ::torch::autograd::Function<NormReluConv> {
 public:
  // The tensors after x are those of the norm and of the convolution, here for autograd to see.
  static Tensor forward(::torch::autograd::AutogradContext* context, const Tensor& x,
                        const Tensor& /*norm_weight*/, const Tensor& /*norm_bias*/,
                        const Tensor& /*weight*/, const Tensor& /*bias*/, const Norm& norm,
                        const Convolution& conv) {
    Normed found = normed(x, norm);
    keep(context, {x, conv.weight}, norm, found);
    keep(context, conv);
    return convolved(at::relu_(found.out).to(conv.weight.scalar_type()), conv);
  }

  static ::torch::autograd::variable_list backward(::torch::autograd::AutogradContext* context,
                                                   ::torch::autograd::variable_list gradients) {
    refuse_second_derivatives("norm_relu_conv");
    const auto saved = context->get_saved_variables();
    const Tensor& x = saved[0];
    const auto [norm, found] = kept(context, saved);
    const Convolution conv = kept(context, saved[1]);
    const auto wanted = [&](std::size_t i) { return context->needs_input_grad(i); };
    const bool below = wanted(0) || wanted(1) || wanted(2);
    Tensor z = normed(x, norm, /*again=*/true).out;
    at::relu_(z);
    auto [gz, gw, gb] = convolution_gradients(gradients[0], z.to(conv.weight.scalar_type()), conv,
                                              {below, wanted(3), wanted(4)});
    if (!below) return {Tensor(), Tensor(), Tensor(), gw, gb, Tensor(), Tensor()};
    gz = at::threshold_backward(gz.to(z.scalar_type()), z, 0);
    z = Tensor();
    auto [gx, norm_gw, norm_gb] =
        norm_gradients(gz, x, norm, found, {wanted(0), wanted(1), wanted(2)});
    return {gx, norm_gw, norm_gb, gw, gb, Tensor(), Tensor()};
  }
};

}  // namespace detail

// conv(relu(norm(x))); output and gradients have its bits.
inline Tensor norm_relu_conv(const Tensor& x, const Norm& norm, const Convolution& conv) {
  detail::check("norm_relu_conv", x, norm);
  detail::check("norm_relu_conv", x, conv);
  const Convolution cast = detail::as_autocast(conv, x.device());
  if (x.numel() == 0 || !detail::at_work({x, norm.weight, norm.bias, conv.weight, conv.bias})) {
    return detail::convolved(detail::as_autocast(at::relu(detail::normed(x, norm).out), x.device()),
                             cast);
  }
  return detail::NormReluConv::apply(x, detail::given(norm.weight, x), detail::given(norm.bias, x),
                                     cast.weight, detail::given(cast.bias, x), norm, cast);
}

}  // namespace ebb::torch
