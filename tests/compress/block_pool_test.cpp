// SPDX-License-Identifier: Apache-2.0
#include "ebb/compress/block_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "ebb/core/random.h"
#include "tests/message_of.h"
#include "tests/thorough.h"

namespace ebb::test::block_pool_test {
namespace {

using testing::HasSubstr;
using Axes = std::array<PoolAxis, 3>;

template <class Number>
std::vector<Number> pooled(const Axes& axes, std::int64_t planes, Pooling kind,
                           const std::vector<Number>& x, int threads = 1) {
  Workers workers(threads);
  std::int64_t count = planes;
  for (const PoolAxis& axis : axes) count *= axis.blocks();
  std::vector<Number> to(static_cast<std::size_t>(count), Number{99});
  pool_blocks(workers, planes, axes, kind, x.data(), to.data());
  return to;
}

// Every element goes to its block; then each block is seen as a whole.
std::vector<double> by_definition(const Axes& axes, std::int64_t planes, Pooling kind,
                                  const std::vector<double>& x) {
  std::map<std::array<std::int64_t, 4>, std::vector<double>> blocks;
  std::size_t next = 0;
  for (std::int64_t n = 0; n < planes; ++n) {
    for (std::int64_t i = 0; i < axes[0].in; ++i) {
      for (std::int64_t j = 0; j < axes[1].in; ++j) {
        for (std::int64_t k = 0; k < axes[2].in; ++k) {
          blocks[{n, i / axes[0].block, j / axes[1].block, k / axes[2].block}].push_back(x[next++]);
        }
      }
    }
  }
  std::vector<double> to;
  for (const auto& [where, values] : blocks) {
    double sum = 0;
    for (const double value : values) sum += value;
    to.push_back(kind == Pooling::max ? *std::ranges::max_element(values)
                                      : sum / static_cast<double>(values.size()));
  }
  return to;
}

template <class Number>
void expect_definition(const Axes& axes, std::uint64_t seed) {
  constexpr std::int64_t planes = 3;
  const Random random(seed);
  std::vector<Number> x(static_cast<std::size_t>(planes * axes[0].in * axes[1].in * axes[2].in));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<Number>(random.normal(i));
  for (const Pooling kind : {Pooling::average, Pooling::max}) {
    const auto expected = by_definition(axes, planes, kind, {x.begin(), x.end()});
    const auto got = pooled(axes, planes, kind, x);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(got[i]), expected[i],
                  kind == Pooling::max ? 0 : (sizeof(Number) == 4 ? 1e-5 : 1e-13));
    }
    EXPECT_EQ(pooled(axes, planes, kind, x, 2), got);
    EXPECT_EQ(pooled(axes, planes, kind, x, 5), got);
  }
}

TEST(BlockPool, IsTheMeanOrTheLargestOfEachBlock) {
  for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(share_of(100)); ++seed) {
    const Random random(seed, 7);
    const auto draw = [&](std::uint64_t i, std::uint64_t most) {
      return static_cast<std::int64_t>(1 + random.below(i, most));
    };
    const Axes axes{
        {{draw(0, 5), draw(1, 6)}, {draw(2, 9), draw(3, 6)}, {draw(4, 40), draw(5, 9)}}};
    SCOPED_TRACE(seed);
    expect_definition<float>(axes, seed);
    expect_definition<double>(axes, seed);
    if (HasFatalFailure()) return;
  }
}

TEST(BlockPool, KeepsTheSmallestNumbersOnAnyThread) {
  const std::vector<float> x(64, 0x1p-140F);
  for (const Pooling kind : {Pooling::average, Pooling::max}) {
    EXPECT_EQ(pooled({{{}, {}, {8, 2}}}, 8, kind, x, 4), std::vector<float>(32, 0x1p-140F));
  }
}

TEST(BlockPool, ANanIsSeenWhereverItIs) {
  for (std::size_t at = 0; at < 6; ++at) {
    std::vector<double> x{1, 2, 3, 4, 5, 6};
    x[at] = NAN;
    for (const Pooling kind : {Pooling::average, Pooling::max}) {
      EXPECT_TRUE(std::isnan(pooled({{{}, {2, 2}, {3, 3}}}, 1, kind, x)[0])) << at;
    }
  }
}

TEST(BlockPool, SaysWhichSizeCannotBe) {
  Workers workers(1);
  std::vector<float> x(4);
  const auto refused = [&](PoolAxis axis) {
    return message_of(
        [&] { pool_blocks(workers, 1, {{{}, {}, axis}}, Pooling::max, x.data(), x.data()); });
  };
  EXPECT_THAT(refused({4, 0}), HasSubstr("an axis of 4 in blocks of 0; both must be at least 1"));
  EXPECT_THAT(refused({0, 2}), HasSubstr("an axis of 0 in blocks of 2"));
}

}  // namespace
}  // namespace ebb::test::block_pool_test
