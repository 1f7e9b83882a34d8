// SPDX-License-Identifier: Apache-2.0
#include "ebb/compress/int8_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/codec/fields_of_elements.h"
#include "tests/message_of.h"

namespace ebb::test::int8_rows_test {
namespace {

using testing::HasSubstr;

template <class Number>
struct Coded {
  std::vector<std::int8_t> codes;
  std::vector<float> scales;
  std::vector<Number> back;
  bool operator==(const Coded&) const = default;
};

template <class Number>
Coded<Number> channels(const ChannelShape& shape, const std::vector<Number>& x,
                       const std::vector<Number>& mean, int threads) {
  Workers workers(threads);
  Coded<Number> c{std::vector<std::int8_t>(x.size()),
                  std::vector<float>(static_cast<std::size_t>(shape.channels)),
                  std::vector<Number>(x.size(), Number{99})};
  const Number* const centre = mean.empty() ? nullptr : mean.data();
  int8_channels_encode(workers, shape, x.data(), centre, c.codes.data(), c.scales.data());
  int8_channels_decode(workers, shape, c.codes.data(), c.scales.data(), centre, c.back.data());
  return c;
}

// Half a scale, and some roundings of numbers as large as x and its mean.
template <class Number>
void expect_within(const ChannelShape& shape, bool centred) {
  const auto count = static_cast<std::size_t>(shape.batch * shape.channels * shape.inner);
  std::vector<Number> x = numbers<Number>(count, 5);
  std::vector<Number> mean;
  for (std::int64_t c = 0; centred && c < shape.channels; ++c) mean.push_back(Number(c) - 2);
  const auto coded = channels(shape, x, mean, 1);
  const auto channel = [&](std::size_t i) {
    return i / static_cast<std::size_t>(shape.inner) % static_cast<std::size_t>(shape.channels);
  };
  std::vector<double> largest(static_cast<std::size_t>(shape.channels));
  const auto deviation = [&](std::size_t i) {
    return std::abs(static_cast<double>(x[i]) -
                    (centred ? static_cast<double>(mean[channel(i)]) : 0));
  };
  for (std::size_t i = 0; i < count; ++i) {
    largest[channel(i)] = std::max(largest[channel(i)], deviation(i));
  }
  for (std::size_t i = 0; i < count; ++i) {
    const double scale = largest[channel(i)] / 127;
    ASSERT_NEAR(static_cast<double>(coded.scales[channel(i)]), scale, scale * 1e-6);
    ASSERT_NEAR(static_cast<double>(coded.back[i]), static_cast<double>(x[i]),
                scale * (0.5 + 0x1p-14) + 1e-6 * std::abs(static_cast<double>(x[i])));
  }
  for (const int threads : {2, 5}) EXPECT_EQ(channels(shape, x, mean, threads), coded);
}

TEST(Int8Rows, ChannelsAreWithinHalfTheirOwnScale) {
  for (const bool centred : {false, true}) {
    for (const ChannelShape shape : {ChannelShape{1, 1, 1}, {3, 5, 7}, {2, 3, 130}, {4, 9, 1}}) {
      expect_within<float>(shape, centred);
      expect_within<double>(shape, centred);
    }
  }
}

template <class Number>
Coded<Number> blocks(const std::vector<Number>& x, int threads) {
  Workers workers(threads);
  const auto count = static_cast<std::int64_t>(x.size());
  Coded<Number> c{std::vector<std::int8_t>(x.size()),
                  std::vector<float>(static_cast<std::size_t>(int8_scales(count))),
                  std::vector<Number>(x.size(), Number{99})};
  int8_blocks_encode(workers, count, x.data(), c.codes.data(), c.scales.data());
  int8_blocks_decode(workers, count, c.codes.data(), c.scales.data(), c.back.data());
  return c;
}

// The codec has its own tests; the bytes are the same.
template <class Number>
void expect_codec(std::size_t count) {
  const std::vector<Number> x = numbers<Number>(count, count);
  const Coded<Number> coded = blocks(x, 1);
  Field expected = encoded(*make_codec("int8", kElement<Number>), bytes_of(x));
  Field got = bytes_of(coded.scales);
  const Field codes = bytes_of(coded.codes);
  got.insert(got.end(), codes.begin(), codes.end());
  EXPECT_EQ(got, expected);
  EXPECT_EQ(coded.back, round_trip(*make_codec("int8", kElement<Number>), x));
  for (const int threads : {2, 5}) EXPECT_EQ(blocks(x, threads), coded);
}

TEST(Int8Rows, BlocksAreTheCodecs) {
  for (const std::size_t count : {1, 63, 64, 65, 1000, 20000}) {
    expect_codec<float>(count);
    expect_codec<double>(count);
  }
}

TEST(Int8Rows, WhatIsNotFiniteShows) {
  for (const float bad : {NAN, HUGE_VALF, -HUGE_VALF}) {
    std::vector<float> x(256, 1.0F);
    x[100] = bad;
    const auto coded = blocks(x, 1);
    const auto rows = channels({2, 2, 64}, x, {}, 1);
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(std::isnan(coded.back[i]), i / 64 == 1) << i;
      EXPECT_EQ(std::isnan(rows.back[i]), i / 64 % 2 == 1) << i;
    }
  }
}

TEST(Int8Rows, SayWhichSizeCannotBe) {
  EXPECT_THAT(message_of([] { channels<float>({1, 0, 3}, {}, {}, 1); }),
              HasSubstr("a tensor [1, 0, 3]; each size must be at least 1"));
}

}  // namespace
}  // namespace ebb::test::int8_rows_test
