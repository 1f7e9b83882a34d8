// SPDX-License-Identifier: Apache-2.0
// Compressed activations allocate what they say.
#include <gtest/gtest.h>

#include "ebb/compress/block_pool.h"
#include "ebb/compress/int8_rows.h"
#include "ebb/compress/pooled_gradient.h"
#include "ebb/compress/sign_bits.h"
#include "ebb/compress/small_indices.h"
#include "tests/counted_new.h"

namespace ebb::test::allocation_test {
namespace {

void expect_scratch(const ConvShape& shape) {
  const auto numbers = [&](std::int64_t channels, std::int64_t plane) {
    return std::vector<float>(static_cast<std::size_t>(shape.batch * channels * plane));
  };
  const auto pooled = numbers(shape.in_channels, shape.blocks());
  const auto gy = numbers(shape.out_channels, shape.outputs());
  std::vector<float> gw(
      static_cast<std::size_t>(shape.out_channels * shape.group_in() * shape.taps()));
  for (const int threads : {1, 3}) {
    Workers workers(threads);
    const long before = allocated_bytes;
    pooled_weight_gradient(workers, shape, pooled.data(), gy.data(), gw.data());
    const long taken = allocated_bytes - before;
    const auto stated = pooled_gradient_scratch<float>(shape, threads);
    EXPECT_LE(taken, stated + 1024);  // and a few offsets
    EXPECT_LE(stated, threads * (2L << 20) + 64L * 1024);
  }
}

TEST(Allocation, PooledGradientsTakeWhatTheyState) {
  const ConvAxis axis{.in = 40, .out = 40, .kernel = 3, .padding = 1, .block = 2};
  expect_scratch({4, 16, 500, 1, {{{}, axis, axis}}});
  expect_scratch({4, 500, 16, 1, {{{}, axis, axis}}});
  expect_scratch({2, 200, 200, 200, {{{}, axis, axis}}});
  expect_scratch({2, 128, 128, 4, {{{}, axis, axis}}});
  const ConvAxis halved{.in = 40, .out = 20, .kernel = 3, .stride = 2, .padding = 1, .block = 2};
  expect_scratch({4, 500, 16, 1, {{{}, halved, halved}}});
  const ConvAxis deep{.in = 12, .out = 12, .kernel = 5, .padding = 2, .block = 3};
  expect_scratch({2, 30, 20, 1, {{deep, deep, deep}}});
}

TEST(Allocation, NoneElementByElement) {
  Workers workers(2);
  std::vector<float> x(10000);
  std::vector<float> pooled(2000);
  std::vector<float> scales(200);
  std::vector<std::uint8_t> bytes(10000);
  auto* const codes = reinterpret_cast<std::int8_t*>(bytes.data());
  std::vector<std::int64_t> indices(10000);
  const long before = allocations;
  sign_bits(workers, 10000, x.data(), Through::positive, 0.0F, 0.0F, bytes.data());
  masked(workers, 10000, bytes.data(), x.data(), x.data());
  pack_small(workers, 10000, indices.data(), 4, bytes.data());
  int8_blocks_encode(workers, 10000, x.data(), codes, scales.data());
  int8_channels_encode<float>(workers, {1, 100, 100}, x.data(), nullptr, codes, scales.data());
  pool_blocks(workers, 100, {{{}, {10, 2}, {10, 3}}}, Pooling::average, x.data(), pooled.data());
  EXPECT_EQ(allocations, before);
}

}  // namespace
}  // namespace ebb::test::allocation_test
