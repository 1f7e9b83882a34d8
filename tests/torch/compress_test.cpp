// SPDX-License-Identifier: Apache-2.0
// Operations that keep less, against torch's own: bit for bit where they are exact, else against
// autograd on what they keep.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ebb/torch.h"

namespace {

using ebb::Pooling;
using ebb::torch::batch_norm_int8;
using ebb::torch::Convolution;
using ebb::torch::max_pool_small;
using ebb::torch::Norm;
using ebb::torch::norm_relu_conv;
using ebb::torch::pooled_conv;
using ebb::torch::relu_bits;
using ebb::torch::relu_bits_;
using torch::Tensor;

using Sizes = std::vector<std::int64_t>;
using Tensors = std::vector<Tensor>;

const auto kDouble = torch::dtype(torch::kDouble);

Tensor leaf(const Sizes& sizes, at::TensorOptions options = kDouble) {
  return torch::randn(sizes, options.dtype(torch::kDouble)).to(options).requires_grad_();
}

// Of a loss in which every element of the output counts differently.
Tensors gradients(const Tensor& out, const Tensors& inputs) {
  const Tensor weights = torch::linspace(-1, 1.5, out.numel(), kDouble).view(out.sizes());
  return torch::autograd::grad({(out * weights.to(out.scalar_type())).sum()}, inputs, {},
                               /*retain_graph=*/true);
}

void expect_same(const Tensors& found, const Tensors& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(torch::equal(found[i], expected[i])) << "tensor " << i;
  }
}

void expect_close(const Tensor& found, const Tensor& expected, double tolerance) {
  ASSERT_EQ(found.sizes(), expected.sizes());
  const double most = expected.abs().max().item<double>() + 1e-30;
  EXPECT_LE((found - expected).abs().max().item<double>(), tolerance * most);
}

// What is left of a forward pass beside its output.
ebb::Bytes bytes_after(const std::function<Tensor()>& forward) {
  ebb::torch::detail::Counting counted(at::kCPU);
  const Tensor out = forward();
  return counted->live() - ebb::Bytes(out.nbytes());
}

Tensor conv(const Tensor& x, const Convolution& c) {
  return at::convolution(x, c.weight, c.bias, c.stride, c.padding, c.dilation, false,
                         Sizes(c.stride.size(), 0), c.groups);
}

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
    {.x = {1, 4, 11, 10}, .weight = {4, 1, 3, 3}, .stride = {2}, .padding = {2}, .dilation = {2},
     .groups = 4, .block = {4}},
    {.x = {3, 2, 9, 9}, .weight = {5, 2, 1, 1}, .stride = {2}, .block = {3}},
    {.x = {2, 2, 10, 10}, .weight = {3, 2, 5, 5}, .stride = {3}, .padding = {2}, .block = {4}},
    {.x = {2, 2, 5, 5}, .weight = {3, 2, 3, 3}, .padding = {1}, .block = {8}},
    {.x = {2, 3, 13}, .weight = {4, 3, 3}, .stride = {2}, .padding = {1}, .block = {4}},
    {.x = {2, 4, 5, 6, 7}, .weight = {4, 2, 3, 3, 2}, .stride = {1, 2, 1}, .padding = {1}, .groups = 2,
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
  for (const std::size_t i : {0, 1, 2}) {
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
    expect_close(ebb::torch::detail::box_gradient(pooled, gy, in, clipped, convolution),
                 torch::autograd::grad({out}, {weight}, {gy})[0], 1e-12);
  }
  // As a type that the codec does not have.
  expect_pooled(kCases[0], true, Pooling::average, torch::dtype(torch::kBFloat16), 0.05);
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

TEST(ReluBits, HasTheBitsOfTorchs) {
  torch::manual_seed(8);
  for (const auto dtype : {torch::kDouble, torch::kFloat, torch::kHalf}) {
    for (const Sizes& sizes : {Sizes{3, 5, 7, 3}, Sizes{1}, Sizes{64}, Sizes{0, 3}}) {
      Tensor values = leaf(sizes, torch::dtype(dtype)).detach();
      if (values.numel() > 5) {
        values.view(-1)[0] = std::numeric_limits<double>::quiet_NaN();
        values.view(-1)[1] = 0;
        values.view(-1)[2] = std::numeric_limits<double>::infinity();
      }
      if (sizes.size() == 4) values = values.contiguous(at::MemoryFormat::ChannelsLast);
      const Tensor x = values.requires_grad_();
      const Tensor stock = torch::relu(x), found = relu_bits(x), in_place = relu_bits_(x.clone());
      EXPECT_TRUE(torch::allclose(found, stock, 0, 0, /*equal_nan=*/true));
      EXPECT_TRUE(torch::allclose(in_place, stock, 0, 0, /*equal_nan=*/true));
      const Tensor gy = torch::randn_like(stock).transpose(0, -1).contiguous().transpose(0, -1);
      const Tensors expected = torch::autograd::grad({stock}, {x}, {gy});
      expect_same(torch::autograd::grad({found}, {x}, {gy}), expected);
      expect_same(torch::autograd::grad({in_place}, {x}, {gy}), expected);
    }
  }
  const torch::NoGradGuard no_grad;
  EXPECT_FALSE(relu_bits(leaf({3})).requires_grad());
}

TEST(ReluBits, IsTheSameByTorchsOperations) {
  const Tensor x = torch::randn({4099});
  const Tensor bits = ebb::torch::detail::relu_bits_of(x);
  EXPECT_TRUE(torch::equal(ebb::torch::detail::relu_bits_of(x.to(torch::kBFloat16)), bits));
  const Tensor gy = torch::randn({4099}).to(torch::kBFloat16);
  EXPECT_TRUE(torch::equal(ebb::torch::detail::masked_by(bits, gy).to(torch::kFloat),
                           ebb::torch::detail::masked_by(bits, gy.to(torch::kFloat))));
}

TEST(MaxPoolSmall, HasTheBitsOfTorchs) {
  torch::manual_seed(9);
  const auto expect = [](const Tensor& x, const Tensor& found, const Tensor& stock) {
    expect_same({found}, {stock});
    expect_same(gradients(found, {x}), gradients(stock, {x}));
  };
  const Tensor row = leaf({2, 3, 17}), map = leaf({2, 3, 11, 14}), room = leaf({2, 3, 5, 6, 7});
  const Tensor last =
      map.detach().to(torch::kFloat).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
  expect(row, max_pool_small(row, 3, 2, 1), torch::max_pool1d(row, 3, 2, 1));
  expect(row, max_pool_small(row, 4), torch::max_pool1d(row, 4));
  for (const Tensor& x : {map, last}) {
    expect(x, max_pool_small(x, 3, 2, 1), torch::max_pool2d(x, 3, 2, 1));
    expect(x, max_pool_small(x, {2, 3}, {1, 2}, {1, 0}, {2, 1}, true),
           torch::max_pool2d(x, {2, 3}, {1, 2}, {1, 0}, {2, 1}, true));
    expect(x, max_pool_small(x, 5, 3, 2), torch::max_pool2d(x, 5, 3, 2));  // eight bits
  }
  expect(room, max_pool_small(room, 2), torch::max_pool3d(room, 2));
  expect(room, max_pool_small(room, {3, 2, 3}, 2, {1, 0, 1}),
         torch::max_pool3d(room, {3, 2, 3}, 2, {1, 0, 1}));
  const Tensor wide = leaf({1, 1, 40, 40});
  expect(wide, max_pool_small(wide, 17), torch::max_pool2d(wide, 17));  // beyond eight bits
  expect_same({max_pool_small(map.detach(), 2)}, {torch::max_pool2d(map, 2).detach()});
}

TEST(MaxPoolSmall, KeepsFourBits) {
  const Tensor x = leaf({2, 8, 64, 64}, torch::kFloat);
  const ebb::Bytes outputs = 2 * 8 * 32 * 32;
  EXPECT_EQ(bytes_after([&] { return max_pool_small(x, 3, 2, 1); }), outputs / 2);
  EXPECT_EQ(bytes_after([&] { return max_pool_small(x, 2); }), outputs / 2);
}

struct Nets {
  torch::nn::BatchNorm2d ours, theirs;
};

Nets norms(const torch::nn::BatchNorm2dOptions& options, bool training, at::ScalarType dtype) {
  Nets nets{torch::nn::BatchNorm2d(options), torch::nn::BatchNorm2d(options)};
  for (torch::nn::BatchNorm2d* norm : {&nets.ours, &nets.theirs}) {
    torch::manual_seed(10);
    (*norm)->to(dtype);
    (*norm)->train(training);
    const torch::NoGradGuard no_grad;
    for (Tensor& tensor : (*norm)->parameters()) tensor.uniform_(0.5, 1.5);
    if ((*norm)->running_var.defined()) (*norm)->running_var.uniform_(0.5, 1.5);
  }
  return nets;
}

void expect_same_statistics(const Nets& nets) {
  const Tensors ours = nets.ours->buffers(), theirs = nets.theirs->buffers();
  expect_same(ours, theirs);
}

const std::vector<torch::nn::BatchNorm2dOptions> kNorms = {
    torch::nn::BatchNorm2dOptions(6), torch::nn::BatchNorm2dOptions(6).momentum(std::nullopt),
    torch::nn::BatchNorm2dOptions(6).affine(false),
    torch::nn::BatchNorm2dOptions(6).track_running_stats(false).eps(0.1)};

TEST(NormReluConv, HasTheBitsOfTorchs) {
  for (const auto& options : kNorms) {
    for (const bool training : {true, false}) {
      for (const auto dtype : {torch::kDouble, torch::kFloat}) {
        const Nets nets = norms(options, training, dtype);
        torch::nn::Conv2d conv2d(torch::nn::Conv2dOptions(6, 4, 3).stride(2).groups(2).bias(false));
        torch::nn::Conv2d biased(torch::nn::Conv2dOptions(6, 4, 3).padding(1));
        for (torch::nn::Conv2d layer : {conv2d, biased}) {
          layer->to(dtype);
          for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
            const Tensor x = leaf({3, 6, 7, 9}, dtype).detach().contiguous(format).requires_grad_();
            torch::nn::BatchNorm2d theirs = nets.theirs;
            const Tensor found = norm_relu_conv(x, nets.ours, layer);
            const Tensor stock = layer(torch::relu(theirs(x)));
            expect_same({found}, {stock});
            expect_same_statistics(nets);
            Tensors of_ours{x}, of_theirs{x};
            for (const Tensor& tensor : nets.ours->parameters()) of_ours.push_back(tensor);
            for (const Tensor& tensor : theirs->parameters()) of_theirs.push_back(tensor);
            for (Tensors* both : {&of_ours, &of_theirs}) {
              for (const Tensor& tensor : layer->parameters()) both->push_back(tensor);
            }
            const Tensors expected = gradients(stock, of_theirs);
            expect_same(gradients(found, of_ours), expected);
            expect_same(gradients(found, of_ours), expected);  // the graph is retained
            expect_same_statistics(nets);
          }
        }
      }
    }
  }
}

TEST(NormReluConv, KeepsItsInputAlone) {
  torch::nn::BatchNorm2d norm(8);
  const Convolution convolution(leaf({8, 8, 3, 3}, torch::kFloat), {}, {1}, {1});
  const Tensor x = leaf({4, 8, 32, 32}, torch::kFloat);
  const ebb::Bytes found = bytes_after([&] { return norm_relu_conv(x * 2, norm, convolution); });
  EXPECT_LE(found, ebb::Bytes(x.nbytes()) + 256);
  EXPECT_GE(bytes_after([&] { return conv(torch::relu(norm(x * 2)), convolution); }),
            2 * ebb::Bytes(x.nbytes()));
}

TEST(NormReluConv, DoesWithoutGradientsBelow) {
  // Frozen below the convolution; and no gradient at all.
  const Nets nets = norms(kNorms[2], true, torch::kDouble);
  const Tensor x = leaf({3, 6, 5, 5}).detach(), weight = leaf({2, 6, 3, 3});
  torch::nn::BatchNorm2d theirs = nets.theirs;
  const Tensor found = norm_relu_conv(x, nets.ours, Convolution(weight));
  const Tensor stock = torch::conv2d(torch::relu(theirs(x)), weight);
  expect_same(gradients(found, {weight}), gradients(stock, {weight}));
  const torch::NoGradGuard no_grad;
  expect_same({norm_relu_conv(x, nets.ours, Convolution(weight))},
              {torch::conv2d(torch::relu(theirs(x)), weight)});
  expect_same_statistics(nets);
}

TEST(BatchNormInt8, HasTheGradientsOfTheRoundedInput) {
  for (const auto& options : kNorms) {
    for (const bool training : {true, false}) {
      for (const auto dtype : {torch::kDouble, torch::kFloat, torch::kBFloat16}) {
        for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
          const Nets nets = norms(options, training, dtype);
          torch::nn::BatchNorm2d theirs = nets.theirs;
          const Tensor x = leaf({3, 6, 7, 9}, dtype).detach().contiguous(format).requires_grad_();
          const Tensor found = batch_norm_int8(x, nets.ours), stock = theirs(x);
          expect_same({found}, {stock});
          expect_same_statistics(nets);
          Tensors of_ours{x}, of_theirs{x};
          for (const Tensor& tensor : nets.ours->parameters()) of_ours.push_back(tensor);
          for (const Tensor& tensor : theirs->parameters()) of_theirs.push_back(tensor);
          const Tensors ours = gradients(found, of_ours), exact = gradients(stock, of_theirs);
          for (std::size_t i = 0; i < ours.size(); ++i) expect_close(ours[i], exact[i], 0.03);
          if (ours.size() > 1) {
            EXPECT_FALSE(torch::equal(ours[1], exact[1])) << "it keeps all bits";
            expect_same({ours[2]}, {exact[2]});
          }
        }
      }
    }
  }
}

TEST(BatchNormInt8, RoundsAsItSays) {
  torch::manual_seed(11);
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    for (const auto dtype : {torch::kDouble, torch::kFloat, torch::kHalf}) {
      using namespace ebb::torch::detail;
      const Tensor x = (torch::randn({4, 5, 6, 7}) * 3 + 10).to(dtype).contiguous(format);
      const Tensor centre = x.to(torch::kFloat).mean({0, 2, 3});
      const auto [codes, scales] = int8_channels(x, Order(x), centre);
      const Tensor back = from_int8_channels(codes, Order(x), scales, centre, dtype);
      EXPECT_EQ(back.scalar_type(), dtype);
      const Tensor centres = centre.view({1, 5, 1, 1});
      const Tensor most = (x - centres).abs().amax({0, 2, 3}, true).to(torch::kDouble);
      // Half a scale, and half of the last bit of a half number about 20.
      const double last_bit = dtype == torch::kHalf ? 0.02 : 1e-5;
      EXPECT_TRUE(((back - x).to(torch::kDouble).abs() <= most / 254 * 1.001 + last_bit)
                      .all()
                      .item<bool>());
      EXPECT_EQ(codes.abs().max().item<int>(), 127);
    }
  }
}

TEST(BatchNormInt8, KeepsAByte) {
  torch::nn::BatchNorm2d norm(8);
  const Tensor x = leaf({4, 8, 32, 32}, torch::kFloat);
  const ebb::Bytes found = bytes_after([&] { return batch_norm_int8(x * 2, norm); });
  EXPECT_LE(found, ebb::Bytes(x.numel()) + 512);
}

std::string refused(const std::function<void()>& call) {
  try {
    call();
  } catch (const ebb::Error& error) {
    EXPECT_EQ(error.code(), ebb::ErrorCode::invalid_argument);
    return error.what();
  }
  return "not refused";
}

TEST(Compressed, RefusesMistakes) {
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  const Tensor x = leaf({2, 3, 8, 8}), weight = leaf({4, 3, 3, 3});
  has(refused([&] { pooled_conv(x, Convolution(weight), 0); }), "a block of 0");
  has(refused([&] { pooled_conv(x, Convolution(weight), {2, 2, 2}); }), "has 3 numbers");
  has(refused([&] { pooled_conv(x[0], Convolution(weight), 2); }), "x has 3 dimensions");
  has(refused([&] { pooled_conv(x, Convolution(weight[0][0]), 2); }), "has 2 dimensions");
  has(refused([&] { pooled_conv(x, Convolution(weight, {}, {1, 1, 1}), 2); }), "stride has 3 numbers");
  const auto options = torch::nn::Conv2dOptions(3, 4, 2);
  torch::nn::Conv2d circular(torch::nn::Conv2dOptions(options).padding_mode(torch::kCircular));
  has(refused([&] { pooled_conv(x, circular, 2); }), "padding_mode");
  torch::nn::Conv2d same(torch::nn::Conv2dOptions(options).padding(torch::kSame));
  has(refused([&] { pooled_conv(x, same, 2); }), "which is odd");
  has(refused([&] { max_pool_small(x[0][0], 2); }), "has 2 dimensions");
  has(refused([&] { max_pool_small(x, {2, 2, 2}); }), "has 3 numbers");
  has(refused([&] { batch_norm_int8(leaf({3}), Norm()); }), "has 1 dimensions");
  has(refused([&] { batch_norm_int8(leaf({1, 3}), Norm()); }), "two or more");
  has(refused([&] { norm_relu_conv(x[0], Norm(), Convolution(weight)); }), "x has 3 dimensions");
}

TEST(Compressed, RefusesSecondDerivatives) {
  const Tensor x = leaf({2, 3, 8, 8}), weight = leaf({4, 3, 3, 3});
  for (const Tensor& out :
       {pooled_conv(x, Convolution(weight), 2), norm_relu_conv(x, Norm(), Convolution(weight)),
        batch_norm_int8(x, Norm()), relu_bits(x), max_pool_small(x, 2)}) {
    EXPECT_THROW(torch::autograd::grad({out.sum()}, {x}, {}, true, /*create_graph=*/true),
                 ebb::Error);
  }
}

TEST(Compressed, TakesAnEmptyBatch) {
  const Tensor x = leaf({0, 3, 8, 8}), weight = leaf({4, 3, 3, 3});
  EXPECT_EQ(pooled_conv(x, Convolution(weight), 2).sizes(), at::IntArrayRef({0, 4, 6, 6}));
  EXPECT_EQ(max_pool_small(x, 2).sizes(), at::IntArrayRef({0, 3, 4, 4}));
  EXPECT_EQ(relu_bits(x).sizes(), x.sizes());
}

}  // namespace
