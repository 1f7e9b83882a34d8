// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/codec/fields_of_elements.h"
#include "tests/message_of.h"

namespace ebb::test::bits_test {
namespace {

using testing::HasSubstr;

TEST(Bits, TheFirstIsTheLowest) {
  std::vector<float> values(11, 0.0F);
  values[0] = values[3] = values[9] = 1.0F;
  EXPECT_EQ(encoded(*make_codec("bits", Element::f32), bytes_of(values)),
            (Field{std::byte{0b1001}, std::byte{0b10}}));
}

template <class T>
void expect_each_alone() {
  const auto codec = make_codec("bits", kElement<T>);
  for (const std::size_t count : {1, 8, 9, 63, 64, 65, 130}) {
    for (std::size_t one = 0; one < count; ++one) {
      std::vector<T> values(count, T{0});
      values[one] = 1;
      EXPECT_EQ(round_trip(*codec, values), values);
      for (T& value : values) value = 1 - value;
      EXPECT_EQ(round_trip(*codec, values), values);
    }
  }
}

TEST(Bits, EveryPlaceByItself) {
  expect_each_alone<float>();
  expect_each_alone<double>();
}

template <class T>
void expect_refused() {
  using Limits = std::numeric_limits<T>;
  const auto codec = make_codec("bits", kElement<T>);
  for (const std::size_t count : {1, 63, 64, 65, 130}) {
    for (const T bad : {T(-0.0), T(0.5), T(2), T(-1), Limits::quiet_NaN(), Limits::infinity(),
                        Limits::denorm_min(), std::nextafter(T{1}, T{2})}) {
      for (const std::size_t at : {std::size_t{0}, count / 2, count - 1}) {
        std::vector<T> values = spikes<T>(count, 0.5, count);
        values[at] = bad;
        const std::string message = message_of([&] { encoded(*codec, bytes_of(values)); });
        EXPECT_THAT(message, HasSubstr("element " + std::to_string(at) + " is "));
        EXPECT_THAT(message, HasSubstr("0 and 1 only"));
      }
    }
  }
}

TEST(Bits, TakesZeroAndOneOnly) {
  expect_refused<float>();
  expect_refused<double>();
}

}  // namespace
}  // namespace ebb::test::bits_test
