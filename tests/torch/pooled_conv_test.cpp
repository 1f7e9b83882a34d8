// SPDX-License-Identifier: Apache-2.0
// pooled_conv against torch's convolution, and its weight gradient against autograd on the input
// with each block filled.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ebb/torch.h"
#include "tests/torch/compressed.h"

namespace {

using namespace libtorch_test;
using ebb::Pooling;
using ebb::torch::norm_relu_conv;
using ebb::torch::pooled_conv;
using ebb::torch::relu_bits;

// Every element replaced by its block's mean or largest, one by one.
Tensor spread(const Tensor& x, const Sizes& block, Pooling pooling) {
  Tensor found = x.detach().clone();
  for (std::size_t axis = 0; axis < block.size(); ++axis) {
    const auto dim = static_cast<std::int64_t>(axis) + 2;
    for (std::int64_t i = 0; i < x.size(dim); i += block[axis]) {
      Tensor part = found.narrow(dim, i, std::min(block[axis], x.size(dim) - i));
      part.copy_((pooling == Pooling::average ? part.mean(dim, true) : part.amax(dim, true))
                     .expand_as(part)
                     .clone());
    }
  }
  return found;
}

struct Case {
  Sizes x, weight;
  Sizes stride = {1}, padding = {0}, dilation = {1};
  std::int64_t groups = 1;
  Sizes block = {2};
};

const std::vector<Case> kCases = {
    {.x = {2, 3, 8, 8}, .weight = {4, 3, 3, 3}, .padding = {1}},
    {.x = {2, 3, 7, 9}, .weight = {4, 3, 3, 3}, .padding = {1}, .block = {2, 4}},
    {.x = {2, 4, 9, 7}, .weight = {6, 2, 3, 2}, .stride = {2, 1}, .padding = {1, 0}, .groups = 2},
    {.x = {1, 4, 11, 10},
     .weight = {4, 1, 3, 3},
     .stride = {2},
     .padding = {2},
     .dilation = {2},
     .groups = 4,
     .block = {4}},
    {.x = {3, 2, 9, 9}, .weight = {5, 2, 1, 1}, .stride = {2}, .block = {3}},
    {.x = {2, 2, 10, 10}, .weight = {3, 2, 5, 5}, .stride = {3}, .padding = {2}, .block = {4}},
    {.x = {2, 2, 5, 5}, .weight = {3, 2, 3, 3}, .padding = {1}, .block = {8}},
    {.x = {2, 3, 13}, .weight = {4, 3, 3}, .stride = {2}, .padding = {1}, .block = {4}},
    {.x = {2, 4, 5, 6, 7},
     .weight = {4, 2, 3, 3, 2},
     .stride = {1, 2, 1},
     .padding = {1},
     .groups = 2,
     .block = {2, 2, 3}},
};

void expect_pooled(const Case& c, bool bias, Pooling pooling, at::TensorOptions options,
                   double tolerance, at::MemoryFormat format = at::MemoryFormat::Contiguous) {
  torch::manual_seed(3);
  const Tensor x = leaf(c.x, options).detach().contiguous(format).requires_grad_();
  const Tensor weight = leaf(c.weight, options);
  const Tensor b = bias ? leaf({c.weight[0]}, options) : Tensor();
  const Convolution convolution(weight, b, c.stride, c.padding, c.dilation, c.groups);
  Tensors inputs{x, weight};
  if (bias) inputs.push_back(b);
  const Tensor stock = conv(x, convolution);
  const Tensor found = pooled_conv(x, convolution, c.block, pooling);
  expect_same({found}, {stock});
  const Tensors theirs = gradients(stock, inputs), ours = gradients(found, inputs);
  EXPECT_EQ(ours[0].sizes(), x.sizes());
  expect_close(ours[0], theirs[0], tolerance * 1e-3);
  if (bias) expect_close(ours[2], theirs[2], tolerance);
  Sizes block = c.block;
  if (block.size() == 1) block.assign(c.x.size() - 2, block[0]);
  // In double, so that the tolerance is for our rounding alone.
  const Tensor wide = spread(x.to(torch::kDouble), block, pooling);
  const Tensor wide_weight = weight.detach().to(torch::kDouble).requires_grad_();
  const Tensor out =
      conv(wide, Convolution(wide_weight, {}, c.stride, c.padding, c.dilation, c.groups));
  expect_close(ours[1].to(torch::kDouble), gradients(out, {wide_weight})[0], tolerance);
}

TEST(PooledConv, HasTheWeightGradientOfTheSpreadInput) {
  for (std::size_t i = 0; i < kCases.size(); ++i) {
    for (const bool bias : {false, true}) {
      SCOPED_TRACE(std::to_string(i) + (bias ? " with bias" : ""));
      expect_pooled(kCases[i], bias, Pooling::average, kDouble, 1e-12);
      expect_pooled(kCases[i], bias, Pooling::max, kDouble, 1e-12);
      expect_pooled(kCases[i], bias, Pooling::average, torch::dtype(torch::kFloat), 1e-5);
    }
  }
}

TEST(PooledConv, HasItInChannelsLastToo) {
  for (std::size_t i = 0; i < 3; ++i) {
    expect_pooled(kCases[i], true, Pooling::average, kDouble, 1e-12,
                  at::MemoryFormat::ChannelsLast);
  }
}

TEST(PooledConv, HasItByTorchsOperations) {
  for (std::size_t i = 0; i < kCases.size(); ++i) {
    SCOPED_TRACE(i);
    const Case& c = kCases[i];
    torch::manual_seed(4);
    Sizes block = c.block;
    if (block.size() == 1) block.assign(c.x.size() - 2, block[0]);
    const Tensor x = leaf(c.x).detach(), weight = leaf(c.weight);
    const Convolution convolution(weight, {}, c.stride, c.padding, c.dilation, c.groups);
    const Tensor out = conv(spread(x, block, Pooling::average), convolution);
    const Tensor gy = torch::randn_like(out);
    Sizes in, clipped;
    for (std::size_t axis = 0; axis < block.size(); ++axis) {
      in.push_back(c.x[axis + 2]);
      clipped.push_back(std::min(block[axis], in[axis]));
    }
    const Tensor pooled = ebb::torch::detail::pooled_blocks(x, clipped, Pooling::average);
    for (const Pooling pooling : {Pooling::average, Pooling::max}) {
      expect_close(ebb::torch::detail::pooled_by_torch(x, clipped, pooling),
                   ebb::torch::detail::pooled_blocks(x, clipped, pooling), 1e-14);
    }
    expect_close(ebb::torch::detail::box_gradient(pooled, gy, in, clipped, convolution),
                 torch::autograd::grad({out}, {weight}, {gy})[0], 1e-12);
  }
}

TEST(PooledConv, TakesNarrowTypes) {
  for (const Case& c : kCases) {
    expect_pooled(c, true, Pooling::average, torch::dtype(torch::kBFloat16), 0.03);
  }
}

TEST(PooledConv, KeepsTheBlocksAlone) {
  torch::manual_seed(5);
  const Tensor x = leaf({4, 8, 32, 32}, torch::kFloat), weight = leaf({8, 8, 3, 3}, torch::kFloat);
  const Convolution convolution(weight, {}, {1}, {1});
  const ebb::Bytes whole = bytes_after([&] { return pooled_conv(x.relu(), convolution, 1); });
  const ebb::Bytes blocks = bytes_after([&] { return pooled_conv(x.relu(), convolution, 4); });
  const auto map = ebb::Bytes(x.nbytes());
  EXPECT_GE(whole, map);
  EXPECT_EQ(blocks, map + map / 16) << "the ReLU's own and the blocks";
  const ebb::Bytes bits = bytes_after([&] { return pooled_conv(relu_bits(x), convolution, 4); });
  EXPECT_EQ(bits, map / 32 + map / 16);
}

TEST(PooledConv, TakesLayersOfTorch) {
  torch::manual_seed(6);
  const Tensor x = leaf({2, 4, 9, 9}, torch::kFloat);
  const auto options = torch::nn::Conv2dOptions(4, 6, 3).dilation(2);
  for (torch::nn::Conv2d layer :
       {torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 6, 3).stride(2).padding(1).groups(2)),
        torch::nn::Conv2d(torch::nn::Conv2dOptions(options).padding(torch::kSame)),
        torch::nn::Conv2d(torch::nn::Conv2dOptions(options).padding(torch::kValid))}) {
    const Tensor found = pooled_conv(x, layer, {2, 3}), stock = layer(x);
    expect_same({found}, {stock});
    expect_close(gradients(found, {x})[0], gradients(stock, {x})[0], 1e-6);
    expect_same({pooled_conv(x, layer, 1)}, {stock});
    expect_same(gradients(pooled_conv(x, layer, 1), layer->parameters()),
                gradients(stock, layer->parameters()));
  }
}

TEST(PooledConv, GoesBackwardUnderAutocast) {
  torch::manual_seed(12);
  const Tensor x = leaf({2, 3, 6, 6, 6}, torch::kFloat);
  torch::nn::Conv3d layer(torch::nn::Conv3dOptions(3, 4, 3).padding(1));
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const Tensor found = pooled_conv(x, layer, 2);
  const Tensors inside = gradients(found, layer->parameters());
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  expect_same(inside, gradients(found, layer->parameters()));
}

TEST(PooledConv, CastsAsAutocastDoes) {
  torch::manual_seed(7);
  const Tensor x = leaf({2, 4, 8, 8}, torch::kFloat);
  torch::nn::Conv2d layer(torch::nn::Conv2dOptions(4, 6, 3).padding(1));
  torch::nn::BatchNorm2d norm(4);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const Tensor stock = layer(x), found = pooled_conv(x, layer, 2);
  const Tensor stock_norm = layer(torch::relu(norm(x)));
  const Tensor found_norm = norm_relu_conv(x, norm, layer);
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_EQ(found.scalar_type(), at::kBFloat16);
  expect_same({found, found_norm}, {stock, stock_norm});
  expect_close(gradients(found, {x})[0], gradients(stock, {x})[0], 0.02);
  const Tensors inputs{x, norm->weight, norm->bias, layer->weight, layer->bias};
  expect_same(gradients(found_norm, inputs), gradients(stock_norm, inputs));
}

}  // namespace
