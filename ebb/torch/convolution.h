// SPDX-License-Identifier: Apache-2.0
// What a convolution is given.
#pragma once

#include <torch/torch.h>

#include <array>
#include <concepts>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "ebb/torch/codec_call.h"

namespace ebb::torch {

// As in torch's conv1d, conv2d and conv3d: one number for all axes or one for each; zeros are
// around the input. A Conv1d, Conv2d or Conv3d of torch::nn is one: it shares its tensors. Throws
// Error(invalid_argument) for other paddings than with zeros and for `same` with an odd number of
// them.
struct Convolution {
  using Sizes = std::vector<std::int64_t>;

  explicit Convolution(Tensor weight_, Tensor bias_ = {}, at::IntArrayRef stride_ = 1,
                       at::IntArrayRef padding_ = 0, at::IntArrayRef dilation_ = 1,
                       std::int64_t groups_ = 1)
      : weight(std::move(weight_)), bias(std::move(bias_)), groups(groups_) {
    if (weight.dim() < 3 || weight.dim() > 5) {
      fail(ErrorCode::invalid_argument, "a convolution's weight has ", weight.dim(),
           " dimensions; they are the channels out and in, and one to three axes");
    }
    stride = detail::each("a convolution's stride", stride_, axes());
    padding = detail::each("a convolution's padding", padding_, axes());
    dilation = detail::each("a convolution's dilation", dilation_, axes());
  }
  template <class Layer>
    requires std::derived_from<Layer, ::torch::nn::Conv1dImpl> ||
             std::derived_from<Layer, ::torch::nn::Conv2dImpl> ||
             std::derived_from<Layer, ::torch::nn::Conv3dImpl>
  Convolution(const ::torch::nn::ModuleHolder<Layer>& layer)  // NOLINT(google-explicit-constructor)
      : Convolution(layer->weight, layer->bias, *layer->options.stride(), padding_of(*layer),
                    *layer->options.dilation(), layer->options.groups()) {}

  std::int64_t axes() const { return weight.dim() - 2; }

  Tensor weight, bias;
  Sizes stride, padding, dilation;
  std::int64_t groups;

 private:
  template <class Layer>
  static Sizes padding_of(const Layer& layer) {
    const auto& options = layer.options;
    if (!std::holds_alternative<::torch::enumtype::kZeros>(options.padding_mode())) {
      fail(ErrorCode::invalid_argument,
           "a convolution's padding_mode is not zeros; pad its input first, with torch::pad");
    }
    if (std::holds_alternative<::torch::enumtype::kValid>(options.padding())) return {0};
    if (!std::holds_alternative<::torch::enumtype::kSame>(options.padding())) {
      return at::IntArrayRef(*std::get<0>(options.padding())).vec();
    }
    Sizes found;
    for (std::size_t i = 0; i < options.kernel_size()->size(); ++i) {
      const std::int64_t both = (*options.dilation())[i] * ((*options.kernel_size())[i] - 1);
      if (both % 2 != 0) {
        fail(ErrorCode::invalid_argument, "a convolution's padding is same with ", both,
             " zeros along axis ", i, ", which is odd; pad its input first, with torch::pad");
      }
      found.push_back(both / 2);
    }
    return found;
  }
};

namespace detail {

inline void check(const char* function, const Tensor& x, const Convolution& conv) {
  if (x.dim() == conv.weight.dim()) return;
  fail(ErrorCode::invalid_argument, function, ": x has ", x.dim(), " dimensions; a weight of ",
       conv.weight.dim(), " asks for as many: batch, channels and the axes");
}

// Where autocast is on, as it would cast them for a convolution.
inline Tensor as_autocast(const Tensor& tensor, at::Device device) {
  if (!tensor.defined() || !at::autocast::is_autocast_enabled(device.type())) return tensor;
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(device.type()), tensor,
                                   device.type());
}
inline Convolution as_autocast(Convolution conv, at::Device device) {
  conv.weight = as_autocast(conv.weight, device);
  conv.bias = as_autocast(conv.bias, device);
  return conv;
}

inline Tensor convolved(const Tensor& x, const Convolution& conv) {
  const Sizes none(conv.stride.size(), 0);
  return at::convolution(x, conv.weight, conv.bias, conv.stride, conv.padding, conv.dilation,
                         /*transposed=*/false, none, conv.groups);
}

// x, the weight, the bias.
inline std::tuple<Tensor, Tensor, Tensor> convolution_gradients(const Tensor& gy, const Tensor& x,
                                                                const Convolution& conv,
                                                                std::array<bool, 3> wanted) {
  const Sizes none(conv.stride.size(), 0), channels{gy.size(1)};
  return at::convolution_backward(
      gy, x, conv.weight, wanted[2] ? at::OptionalIntArrayRef(channels) : std::nullopt, conv.stride,
      conv.padding, conv.dilation, /*transposed=*/false, none, conv.groups, wanted);
}

// A node's: the tensors are saved by it.
inline void keep(::torch::autograd::AutogradContext* context, const Convolution& conv) {
  context->saved_data["stride"] = conv.stride;
  context->saved_data["padding"] = conv.padding;
  context->saved_data["dilation"] = conv.dilation;
  context->saved_data["groups"] = conv.groups;
}
inline Convolution kept(::torch::autograd::AutogradContext* context, const Tensor& weight) {
  auto& data = context->saved_data;
  return Convolution(weight, {}, data["stride"].toIntVector(), data["padding"].toIntVector(),
                     data["dilation"].toIntVector(), data["groups"].toInt());
}

}  // namespace detail
}  // namespace ebb::torch
