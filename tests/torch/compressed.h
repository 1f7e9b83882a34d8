// SPDX-License-Identifier: Apache-2.0
// How operations that keep less compare with torch's own.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "ebb/torch.h"

namespace libtorch_test {

using ebb::torch::Convolution;
using torch::Tensor;

using Sizes = std::vector<std::int64_t>;
using Tensors = std::vector<Tensor>;

inline const auto kDouble = torch::dtype(torch::kDouble);

inline Tensor leaf(const Sizes& sizes, at::TensorOptions options = kDouble) {
  return torch::randn(sizes, options.dtype(torch::kDouble)).to(options).requires_grad_();
}

// Of a loss in which every element of the output counts differently.
inline Tensors gradients(const Tensor& out, const Tensors& inputs) {
  const Tensor weights = torch::linspace(-1, 1.5, out.numel(), kDouble).view(out.sizes());
  return torch::autograd::grad({(out * weights.to(out.scalar_type())).sum()}, inputs, {},
                               /*retain_graph=*/true);
}

inline void expect_same(const Tensors& found, const Tensors& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(torch::equal(found[i], expected[i])) << "tensor " << i;
  }
}

inline void expect_close(const Tensor& found, const Tensor& expected, double tolerance) {
  ASSERT_EQ(found.sizes(), expected.sizes());
  const double most = expected.abs().max().item<double>() + 1e-30;
  EXPECT_LE((found - expected).abs().max().item<double>(), tolerance * most);
}

// What is left of a forward pass beside its output.
inline ebb::Bytes bytes_after(const std::function<Tensor()>& forward) {
  ebb::torch::detail::Counting counted(at::kCPU);
  const Tensor out = forward();
  return counted->live() - ebb::Bytes(out.nbytes());
}

inline Tensor conv(const Tensor& x, const Convolution& c) {
  return at::convolution(x, c.weight, c.bias, c.stride, c.padding, c.dilation, false,
                         Sizes(c.stride.size(), 0), c.groups);
}

}  // namespace libtorch_test
