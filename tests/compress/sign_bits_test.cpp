// SPDX-License-Identifier: Apache-2.0
#include "ebb/compress/sign_bits.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "ebb/core/random.h"

namespace ebb::test::sign_bits_test {
namespace {

template <class Number>
std::vector<Number> every_kind(std::int64_t count) {
  using Limits = std::numeric_limits<Number>;
  const Random random(static_cast<std::uint64_t>(count));
  const std::vector<Number> special{
      Limits::quiet_NaN(),  -Limits::quiet_NaN(),  0,
      -Number{0},           Limits::infinity(),    -Limits::infinity(),
      Limits::denorm_min(), -Limits::denorm_min(), Number{6}};
  std::vector<Number> values;
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(count); ++i) {
    const bool plain = random.below(2 * i + 1, 3) != 0;
    values.push_back(plain ? static_cast<Number>(random.normal(1000000 + i) * 4)
                           : special[random.below(2 * i, special.size())]);
  }
  return values;
}

template <class Number>
bool passes(Number x, Through through, Number low, Number high) {
  if (through == Through::between) return low < x && x < high;
  return x > 0 || (through == Through::positive_or_nan && std::isnan(x));
}

template <class Number>
auto word(Number value) {
  if constexpr (sizeof(Number) == 4) {
    return std::bit_cast<std::uint32_t>(value);
  } else {
    return std::bit_cast<std::uint64_t>(value);
  }
}

template <class Number>
void expect_masks(std::int64_t count, Through through, int threads) {
  Workers workers(threads);
  const std::vector<Number> x = every_kind<Number>(count);
  const std::vector<Number> gy = every_kind<Number>(count + 1);
  std::vector<std::uint8_t> bits(static_cast<std::size_t>(sign_bytes(count)) + 1, 0xAA);
  const Number low = -1;
  const Number high = 6;
  sign_bits(workers, count, x.data(), through, low, high, bits.data());
  ASSERT_EQ(bits.back(), 0xAA);
  std::vector<Number> gx(gy.size(), Number{99});
  std::vector<Number> sloped(gy.size(), Number{99});
  masked(workers, count, bits.data(), gy.data(), gx.data());
  masked_slope(workers, count, bits.data(), gy.data(), Number{0.25}, sloped.data());
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const bool through_here = passes(x[i], through, low, high);
    ASSERT_EQ((bits[i / 8] >> (i % 8) & 1) != 0, through_here) << i << ": " << x[i];
    ASSERT_EQ(word(gx[i]), through_here ? word(gy[i]) : 0) << i;
    const Number less = through_here ? gy[i] : gy[i] * Number{0.25};
    ASSERT_TRUE(word(sloped[i]) == word(less) || std::isnan(less)) << i << ": " << gy[i];
  }
  for (auto i = static_cast<std::size_t>(count); i < 8 * (bits.size() - 1); ++i) {
    ASSERT_EQ(bits[i / 8] >> (i % 8) & 1, 0) << i;
  }
  ASSERT_EQ(gx.back(), Number{99});
}

TEST(SignBits, LetThroughWhatPasses) {
  for (const std::int64_t count : {1, 7, 8, 9, 63, 64, 65, 511, 512, 513, 4096, 4097, 20000}) {
    for (const Through through : {Through::positive_or_nan, Through::positive, Through::between}) {
      for (const int threads : {1, 3}) {
        SCOPED_TRACE(count);
        expect_masks<float>(count, through, threads);
        expect_masks<double>(count, through, threads);
      }
    }
  }
}

TEST(SignBits, TheFirstIsTheLowest) {
  Workers workers(1);
  const std::vector<float> x{1, -1, 0, 2, -1, -1, -1, -1, -1, 5};
  std::vector<std::uint8_t> bits(2);
  sign_bits(workers, 10, x.data(), Through::positive, 0.0F, 0.0F, bits.data());
  EXPECT_EQ(bits, (std::vector<std::uint8_t>{0b1001, 0b10}));
}

}  // namespace
}  // namespace ebb::test::sign_bits_test
