// SPDX-License-Identifier: Apache-2.0
// Operations that keep less, against torch's own: bit for bit where they are exact.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "ebb/torch.h"
#include "tests/torch/compressed.h"

namespace {

using namespace libtorch_test;
using ebb::torch::batch_norm_int8;
using ebb::torch::max_pool_small;
using ebb::torch::Norm;
using ebb::torch::norm_relu_conv;
using ebb::torch::pooled_conv;
using ebb::torch::relu_bits;
using ebb::torch::relu_bits_;

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

TEST(MaxPoolSmall, IsTheSameByTorchsOperations) {
  using namespace ebb::torch::detail;
  for (const int bits : {4, 8}) {
    const Tensor places = torch::randint(1 << bits, {1001}, torch::kLong);
    const Tensor packed = pack_places(places, bits);
    EXPECT_TRUE(torch::equal(pack_by_torch(places, bits), packed));
    const Tensor back = torch::empty_like(places);
    unpack_by_torch(packed, bits, back);
    EXPECT_TRUE(torch::equal(back, places));
  }
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
  static_assert(!std::is_convertible_v<torch::nn::ConvTranspose2d, Convolution>);
  static_assert(!std::is_convertible_v<torch::nn::InstanceNorm2d, Norm>);
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  const Tensor x = leaf({2, 3, 8, 8}), weight = leaf({4, 3, 3, 3});
  has(refused([&] { pooled_conv(x, Convolution(weight), 0); }), "a block of 0");
  has(refused([&] { pooled_conv(x, Convolution(weight), {2, 2, 2}); }), "has 3 numbers");
  has(refused([&] { pooled_conv(x[0], Convolution(weight), 2); }), "x has 3 dimensions");
  has(refused([&] { pooled_conv(x, Convolution(weight[0][0]), 2); }), "has 2 dimensions");
  has(refused([&] { pooled_conv(x, Convolution(weight, {}, {1, 1, 1}), 2); }),
      "stride has 3 numbers");
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
