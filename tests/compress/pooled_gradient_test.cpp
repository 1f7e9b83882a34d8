// SPDX-License-Identifier: Apache-2.0
// The gradient by its definition: the map is filled again, position by position, and every tap of
// every output is multiplied.
#include "ebb/compress/pooled_gradient.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "ebb/core/random.h"
#include "tests/message_of.h"
#include "tests/thorough.h"

namespace ebb::test::pooled_gradient_test {
namespace {

using testing::HasSubstr;
using Position = std::array<std::int64_t, 3>;

template <class Number>
std::vector<Number> numbers(std::int64_t count, std::uint64_t seed) {
  const Random random(seed);
  std::vector<Number> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<Number>(static_cast<float>(random.normal(i)));
  }
  return values;
}

template <class Visit>
void each(const Position& sizes, const Visit& visit) {
  for (std::int64_t i = 0; i < sizes[0]; ++i) {
    for (std::int64_t j = 0; j < sizes[1]; ++j) {
      for (std::int64_t k = 0; k < sizes[2]; ++k) visit(Position{i, j, k});
    }
  }
}

std::int64_t at(const Position& sizes, const Position& p) {
  return (p[0] * sizes[1] + p[1]) * sizes[2] + p[2];
}

struct Sizes {
  Position in, out, kernel, blocks;
  explicit Sizes(const ConvShape& shape) {
    for (std::size_t a = 0; a < 3; ++a) {
      in[a] = shape.axes[a].in;
      out[a] = shape.axes[a].out;
      kernel[a] = shape.axes[a].kernel;
      blocks[a] = (in[a] - 1) / shape.axes[a].block + 1;
    }
  }
};

std::vector<double> upsampled(const ConvShape& shape, const std::vector<double>& pooled) {
  const Sizes sizes(shape);
  const std::int64_t planes = shape.batch * shape.in_channels;
  const std::int64_t plane = sizes.in[0] * sizes.in[1] * sizes.in[2];
  std::vector<double> full(static_cast<std::size_t>(planes * plane));
  for (std::int64_t n = 0; n < planes; ++n) {
    each(sizes.in, [&](const Position& p) {
      Position block;
      for (std::size_t a = 0; a < 3; ++a) block[a] = p[a] / shape.axes[a].block;
      full[static_cast<std::size_t>(n * plane + at(sizes.in, p))] =
          pooled[static_cast<std::size_t>(n * shape.blocks() + at(sizes.blocks, block))];
    });
  }
  return full;
}

// One weight: channel `c` of the input, counted over all groups, to channel `o` of the output.
double weight_by_definition(const ConvShape& shape, const std::vector<double>& full,
                            const std::vector<double>& gy, std::int64_t o, std::int64_t c,
                            const Position& tap) {
  const Sizes sizes(shape);
  const std::int64_t plane = sizes.in[0] * sizes.in[1] * sizes.in[2];
  double sum = 0;
  for (std::int64_t n = 0; n < shape.batch; ++n) {
    each(sizes.out, [&](const Position& p) {
      Position from;
      for (std::size_t a = 0; a < 3; ++a) {
        const ConvAxis& axis = shape.axes[a];
        from[a] = p[a] * axis.stride + tap[a] * axis.dilation - axis.padding;
        if (from[a] < 0 || from[a] >= axis.in) return;
      }
      sum +=
          gy[static_cast<std::size_t>((n * shape.out_channels + o) * shape.outputs() +
                                      at(sizes.out, p))] *
          full[static_cast<std::size_t>((n * shape.in_channels + c) * plane + at(sizes.in, from))];
    });
  }
  return sum;
}

// Each `every`th weight; the others are NaN.
std::vector<double> by_definition(const ConvShape& shape, const std::vector<double>& pooled,
                                  const std::vector<double>& gy, std::size_t every) {
  const std::vector<double> full = upsampled(shape, pooled);
  std::vector<double> gw;
  for (std::int64_t o = 0; o < shape.out_channels; ++o) {
    const std::int64_t group = o / (shape.out_channels / shape.groups);
    const std::int64_t first = group * (shape.in_channels / shape.groups);
    for (std::int64_t c = 0; c < shape.in_channels / shape.groups; ++c) {
      each(Sizes(shape).kernel, [&](const Position& tap) {
        gw.push_back(gw.size() % every == 0
                         ? weight_by_definition(shape, full, gy, o, first + c, tap)
                         : NAN);
      });
    }
  }
  return gw;
}

template <class Number>
std::vector<Number> gradient(const ConvShape& shape, const std::vector<Number>& pooled,
                             const std::vector<Number>& gy, int threads) {
  Workers workers(threads);
  std::vector<Number> gw(
      static_cast<std::size_t>(shape.out_channels * shape.group_in() * shape.taps()), Number{99});
  pooled_weight_gradient(workers, shape, pooled.data(), gy.data(), gw.data());
  return gw;
}

// Sums of `terms` products of size 1, rounded after each in the worst case.
template <class Number>
void expect_close(const std::vector<Number>& got, const std::vector<double>& expected,
                  double terms) {
  const double allowed = std::ldexp(8 * terms, sizeof(Number) == 4 ? -24 : -53);
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(expected[i])) continue;
    ASSERT_NEAR(static_cast<double>(got[i]), expected[i], allowed) << "weight " << i;
  }
}

template <class Number>
void expect_definition(const ConvShape& shape, std::uint64_t seed, std::size_t every) {
  const std::int64_t inputs = shape.batch * shape.in_channels * shape.blocks();
  const std::int64_t outputs = shape.batch * shape.out_channels * shape.outputs();
  const auto pooled = numbers<Number>(inputs, seed);
  const auto gy = numbers<Number>(outputs, seed + 1);
  const auto expected =
      by_definition(shape, {pooled.begin(), pooled.end()}, {gy.begin(), gy.end()}, every);
  const auto alone = gradient(shape, pooled, gy, 1);
  expect_close(alone, expected, static_cast<double>(shape.batch * shape.outputs()));
  for (const int threads : {2, 3, 7}) EXPECT_EQ(gradient(shape, pooled, gy, threads), alone);
}

void expect_both(const ConvShape& shape, std::uint64_t seed = 1, std::size_t every = 1) {
  expect_definition<double>(shape, seed, every);
  expect_definition<float>(shape, seed, every);
}

ConvAxis random_axis(const Random& random, std::uint64_t part, std::uint64_t most) {
  const auto draw = [&](std::uint64_t i, std::uint64_t from, std::uint64_t to) {
    return static_cast<std::int64_t>(from + random.below(part * 16 + i, to - from + 1));
  };
  ConvAxis axis;
  axis.in = draw(0, 1, most);
  axis.kernel = draw(1, 1, 4);
  axis.stride = draw(2, 1, 3);
  axis.padding = draw(3, 0, 4);
  axis.dilation = draw(4, 1, 3);
  axis.block = draw(5, 1, most / 2 + 3);
  const std::int64_t reach = axis.dilation * (axis.kernel - 1);
  const std::int64_t behind = draw(6, 0, static_cast<std::uint64_t>(std::max(axis.padding, reach)));
  const std::int64_t room = axis.in + axis.padding + behind - reach - 1;
  if (room < 0) return random_axis(random, part + 1000, most);
  axis.out = std::max<std::int64_t>(1, room / axis.stride + 1 - draw(7, 0, 1));
  return axis;
}

TEST(PooledGradient, IsThatOfTheFilledMap) {
  for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(share_of(200)); ++seed) {
    const Random random(seed);
    const auto draw = [&](std::uint64_t i, std::uint64_t most) {
      return static_cast<std::int64_t>(1 + random.below(100000 + i, most));
    };
    const std::int64_t groups = draw(0, 2) * draw(1, 2);
    const bool depthwise = seed % 5 == 0;
    ConvShape shape{
        draw(2, 3), groups * (depthwise ? 1 : draw(3, 14)), groups * draw(4, 7), groups, {}};
    const std::size_t dims = 1 + seed % 3;
    for (std::size_t a = 3 - dims; a < 3; ++a) {
      shape.axes[a] = random_axis(random, a, dims == 1 ? 40 : dims == 2 ? 13 : 6);
    }
    SCOPED_TRACE(seed);
    expect_both(shape, seed);
    if (HasFatalFailure()) return;
  }
}

// More channels, blocks and outputs than a tile has.
TEST(PooledGradient, GoesOnFromTileToTile) {
  const auto expect_some = [](const ConvShape& shape) { expect_both(shape, 1, 29); };
  const ConvAxis one{.in = 30, .out = 30, .block = 2};
  expect_some({3, 400, 4, 1, {{{}, one, one}}});
  expect_some({3, 20, 300, 1, {{{}, one, one}}});
  const ConvAxis three{.in = 30, .out = 30, .kernel = 3, .padding = 1, .block = 1};
  expect_some({2, 50, 40, 1, {{{}, three, three}}});
  const ConvAxis five{.in = 60, .out = 60, .kernel = 5, .padding = 2, .block = 2};
  expect_some({2, 3, 3, 3, {{{}, five, five}}});
  expect_some({1, 8, 20, 2, {{{}, three, five}}});
  const ConvAxis line{.in = 3000, .out = 1499, .kernel = 4, .stride = 2, .block = 4};
  expect_some({1, 5, 6, 1, {{{}, {}, line}}});
}

TEST(PooledGradient, KernelsMayReachFarIntoThePadding) {
  for (std::int64_t padding : {3, 9}) {
    for (std::int64_t block : {1, 2, 5, 50}) {
      const ConvAxis axis{.in = 4,
                          .out = 4 + 2 * padding - 6,
                          .kernel = 3,
                          .padding = padding,
                          .dilation = 3,
                          .block = block};
      expect_both({2, 3, 4, 1, {{{}, {}, axis}}});
      expect_both({1, 6, 3, 1, {{{}, axis, axis}}});
    }
  }
}

// Far below the least normal number; threads of Workers count such numbers as 0 by themselves.
TEST(PooledGradient, HasTheSameBitsForTheSmallestNumbersOnAnyNumberOfThreads) {
  const ConvAxis axis{.in = 9, .out = 9, .kernel = 3, .padding = 1, .block = 2};
  const ConvShape shape{2, 16, 16, 1, {{{}, axis, axis}}};
  auto pooled = numbers<float>(2 * 16 * 25, 1);
  auto gy = numbers<float>(2 * 16 * 81, 2);
  for (float& value : gy) value *= 0x1p-130F;
  const auto alone = gradient(shape, pooled, gy, 1);
  EXPECT_EQ(gradient(shape, pooled, gy, 2), alone);
  EXPECT_EQ(gradient(shape, pooled, gy, 5), alone);
}

std::string refused(const ConvShape& shape) {
  return message_of([&] { check(shape); });
}

TEST(PooledGradient, SaysWhichSizeCannotBe) {
  const ConvAxis axis{.in = 8, .out = 8, .kernel = 3, .padding = 1, .block = 2};
  const auto with = [&](std::int64_t ConvAxis::* member, std::int64_t value) {
    ConvAxis changed = axis;
    changed.*member = value;
    return refused({1, 4, 4, 1, {{{}, {}, changed}}});
  };
  EXPECT_EQ(refused({1, 4, 4, 1, {{{}, {}, axis}}}), "no error");
  EXPECT_EQ(with(&ConvAxis::out, 9), "no error");  // two behind the input, as "same" may need
  EXPECT_THAT(with(&ConvAxis::out, 10), HasSubstr("output's size is 10; with an input of 8"));
  EXPECT_THAT(with(&ConvAxis::out, 10), HasSubstr("at most 9"));
  EXPECT_THAT(with(&ConvAxis::in, 0), HasSubstr("input's size is 0; it must be 1 to"));
  EXPECT_THAT(with(&ConvAxis::kernel, 0), HasSubstr("kernel's size is 0"));
  EXPECT_THAT(with(&ConvAxis::stride, 0), HasSubstr("stride is 0"));
  EXPECT_THAT(with(&ConvAxis::padding, -1), HasSubstr("padding is -1; it must be 0 to"));
  EXPECT_THAT(with(&ConvAxis::dilation, 0), HasSubstr("dilation is 0"));
  EXPECT_THAT(with(&ConvAxis::block, 0), HasSubstr("block is 0"));
  EXPECT_THAT(refused({0, 4, 4, 1, {{{}, {}, axis}}}), HasSubstr("batch is 0"));
  EXPECT_THAT(refused({1, 4, 4, 3, {{{}, {}, axis}}}),
              HasSubstr("3 groups of 4 and 4 channels; groups must divide both"));
}

}  // namespace
}  // namespace ebb::test::pooled_gradient_test
