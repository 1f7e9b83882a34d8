// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>

#include "tests/codec/fields_of_elements.h"
#include "tests/message_of.h"

namespace ebb::test::int8_test {
namespace {

using testing::HasSubstr;

// Half a scale; a quotient of up to 127 and the product back are each rounded by up to
// 127 * 2^-24 scales, the float of a double and the scale by as much again: in all less than 2^-14.
template <class T>
void expect_within_half_a_scale(const std::vector<T>& values) {
  const std::vector<T> back = round_trip(*make_codec("int8", kElement<T>), values);
  for (std::size_t first = 0; first < values.size(); first += 64) {
    const std::size_t last = std::min(first + 64, values.size());
    double largest = 0;
    for (std::size_t i = first; i < last; ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(values[i])));
    }
    const double scale = std::max(largest / 127, static_cast<double>(FLT_MIN));
    for (std::size_t i = first; i < last; ++i) {
      ASSERT_LE(std::abs(static_cast<double>(back[i]) - static_cast<double>(values[i])),
                scale * (0.5 + 0x1p-14))
          << "element " << i << " of " << values.size() << ", " << values[i] << ", scale " << scale;
      ASSERT_TRUE(back[i] == 0 || std::signbit(back[i]) == std::signbit(values[i])) << values[i];
    }
  }
}

template <class T>
void expect_everywhere() {
  for (const std::size_t count : {1, 2, 63, 64, 65, 128, 1000}) {
    expect_within_half_a_scale(numbers<T>(count, count));
    expect_within_half_a_scale(spikes<T>(count, 0.3, count));
  }
  // From denormals to the largest: what is below is scaled by the least normal float.
  for (int exponent = -149; exponent < 127; ++exponent) {
    std::vector<T> values = numbers<T>(130, static_cast<std::uint64_t>(exponent) + 200);
    for (T& value : values) value = static_cast<T>(std::ldexp(std::fmod(value, 1.0), exponent));
    expect_within_half_a_scale(values);
    values[7] = static_cast<T>(std::ldexp(1.4999, exponent));
    values[99] = -values[7];
    expect_within_half_a_scale(values);
  }
  expect_within_half_a_scale(std::vector<T>{FLT_MAX, -FLT_MAX, 0, FLT_MAX / 3});
  expect_within_half_a_scale(std::vector<T>{FLT_TRUE_MIN, -FLT_TRUE_MIN, FLT_MIN, -FLT_MIN});
}

TEST(Int8, IsWithinHalfAScale) {
  expect_everywhere<float>();
  expect_everywhere<double>();
}

TEST(Int8, TheLargestOfABlockAndZerosComeBack) {
  std::vector<float> values(200, 0.0F);
  values[70] = -254.0F;
  values[71] = 2.0F;
  EXPECT_EQ(round_trip(*make_codec("int8", Element::f32), values), values);
}

TEST(Int8, ScalesAreOfTheirOwnBlock) {
  std::vector<float> values(128, 1.0F);
  for (std::size_t i = 64; i < 128; ++i) values[i] = 1e6F;
  const auto back = round_trip(*make_codec("int8", Element::f32), values);
  EXPECT_NEAR(back[0], 1.0F, 1e-6F);
  EXPECT_NEAR(back[127], 1e6F, 1.0F);
}

TEST(Int8, TakesFiniteNumbersOnly) {
  const auto codec = make_codec("int8", Element::f32);
  const auto wide = make_codec("int8", Element::f64);
  std::vector<float> values = numbers<float>(300, 1);
  for (const std::size_t at : {0, 63, 64, 299}) {
    for (const float bad : {HUGE_VALF, -HUGE_VALF, NAN, -NAN}) {
      std::vector<float> damaged = values;
      damaged[at] = bad;
      const std::string message = message_of([&] { encoded(*codec, bytes_of(damaged)); });
      EXPECT_THAT(message, HasSubstr("element " + std::to_string(at) + " is "));
      EXPECT_THAT(message, HasSubstr("finite"));
    }
  }
  EXPECT_THAT(message_of([&] { encoded(*wide, bytes_of(std::vector<double>{1, 1e39})); }),
              HasSubstr("element 1 is 1e+39"));
}

}  // namespace
}  // namespace ebb::test::int8_test
