// SPDX-License-Identifier: Apache-2.0
// What a batch norm is given.
#pragma once

#include <torch/torch.h>

#include <array>
#include <concepts>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "ebb/torch/codec_call.h"

namespace ebb::torch {

// As in torch::nn; tensors may be undefined. A BatchNorm1d, BatchNorm2d or BatchNorm3d of torch::nn
// is one: it shares its tensors, and running statistics and the count of batches are updated as its
// forward would.
struct Norm {
  Norm() = default;
  template <class Layer>
    requires std::derived_from<Layer, ::torch::nn::BatchNorm1dImpl> ||
                 std::derived_from<Layer, ::torch::nn::BatchNorm2dImpl> ||
                 std::derived_from<Layer, ::torch::nn::BatchNorm3dImpl>
  Norm(const ::torch::nn::ModuleHolder<Layer>& layer)  // NOLINT(google-explicit-constructor)
      : weight(layer->weight),
        bias(layer->bias),
        running_mean(layer->running_mean),
        running_var(layer->running_var),
        batches(layer->num_batches_tracked),
        training(layer->is_training()),
        momentum(layer->options.momentum()),
        eps(layer->options.eps()) {}

  Tensor weight, bias, running_mean, running_var;
  Tensor batches;  // how many were seen
  bool training = true;
  std::optional<double> momentum = 0.1;  // none: the mean over all batches
  double eps = 1e-5;

  bool uses_batch() const { return training || !running_mean.defined(); }
};

namespace detail {

struct Normed {
  Tensor out, mean, rstd, reserve;
  std::int64_t kind;  // which implementation of torch's it was
};

// `again`: running statistics have been updated already.
inline Normed normed(const Tensor& x, const Norm& norm, bool again = false) {
  const bool batch = norm.uses_batch();
  double momentum = norm.momentum.value_or(0);
  Tensor mean = norm.running_mean, var = norm.running_var;
  if (again && batch) {
    mean = var = Tensor();
  } else if (!again && norm.training && norm.batches.defined()) {
    Tensor batches = norm.batches;
    batches += 1;
    if (!norm.momentum) momentum = 1 / batches.item<double>();
  }
  Normed found;
  std::tie(found.out, found.mean, found.rstd, found.reserve, found.kind) =
      at::_batch_norm_impl_index(x, norm.weight, norm.bias, mean, var, batch, momentum, norm.eps,
                                 at::globalContext().userEnabledCuDNN());
  return found;
}

// What a node saves beside its own: read back by kept(), from the end of the saved ones. Running
// statistics are copied, since they may change before the backward pass.
inline void keep(::torch::autograd::AutogradContext* context, std::vector<Tensor> own,
                 const Norm& norm, const Normed& found) {
  const bool batch = norm.uses_batch();
  for (const Tensor& tensor :
       {norm.weight, norm.bias, batch ? Tensor() : norm.running_mean.clone(),
        batch ? Tensor() : norm.running_var.clone(), found.mean, found.rstd, found.reserve}) {
    own.push_back(tensor);
  }
  context->save_for_backward(std::move(own));
  context->saved_data["eps"] = norm.eps;
  context->saved_data["kind"] = found.kind;
}
inline std::pair<Norm, Normed> kept(::torch::autograd::AutogradContext* context,
                                    const std::vector<Tensor>& saved) {
  const auto at = [&, first = saved.size() - 7](std::size_t i) { return saved[first + i]; };
  Norm norm;
  norm.weight = at(0);
  norm.bias = at(1);
  norm.running_mean = at(2);
  norm.running_var = at(3);
  norm.training = !norm.running_mean.defined();
  norm.eps = context->saved_data["eps"].toDouble();
  return {norm, {Tensor(), at(4), at(5), at(6), context->saved_data["kind"].toInt()}};
}

// x, the weight, the bias.
inline std::tuple<Tensor, Tensor, Tensor> norm_gradients(const Tensor& gy, const Tensor& x,
                                                         const Norm& norm, const Normed& found,
                                                         std::array<bool, 3> wanted) {
  return at::_batch_norm_impl_index_backward(found.kind, x, gy, norm.weight, norm.running_mean,
                                             norm.running_var, found.mean, found.rstd,
                                             norm.uses_batch(), norm.eps, wanted, found.reserve);
}

inline void check(const char* function, const Tensor& x, const Norm& norm) {
  if (x.dim() < 2) {
    fail(ErrorCode::invalid_argument, function, ": x has ", x.dim(),
         " dimensions; the first two are batch and channels");
  }
  if (norm.uses_batch() && x.numel() == x.size(1)) {
    fail(ErrorCode::invalid_argument, function, ": one value for each of ", x.size(1),
         " channels; statistics need two or more");
  }
}

}  // namespace detail
}  // namespace ebb::torch
