// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/codec/fields_of_elements.h"
#include "tests/message_of.h"

namespace ebb::test::pool_test {
namespace {

using testing::HasSubstr;

template <class T>
void expect_means(std::size_t block, std::size_t inner, std::size_t rows) {
  const std::vector<T> values = numbers<T>(rows * inner, rows);
  const auto codec =
      make_codec("pool:" + std::to_string(block) + "x" + std::to_string(inner), kElement<T>);
  const auto kept = values_of<T>(encoded(*codec, bytes_of(values)));
  const auto back = round_trip(*codec, values);
  ASSERT_EQ(kept.size(), (rows + block - 1) / block * inner);
  for (std::size_t r = 0; r < rows; ++r) {
    const std::size_t first = r / block * block;
    const std::size_t last = std::min(first + block, rows);
    for (std::size_t i = 0; i < inner; ++i) {
      long double sum = 0;
      long double sizes = 0;
      for (std::size_t n = first; n < last; ++n) {
        sum += static_cast<long double>(values[n * inner + i]);
        sizes += std::abs(static_cast<long double>(values[n * inner + i]));
      }
      // A sum of n numbers errs by less than n units in the last place of the sum of their sizes.
      const long double count = static_cast<long double>(last - first);
      const long double error = std::numeric_limits<T>::epsilon() * sizes;
      ASSERT_NEAR(back[r * inner + i], static_cast<double>(sum / count), static_cast<double>(error))
          << block << "x" << inner << ", row " << r << " of " << rows;
      ASSERT_EQ(back[r * inner + i], kept[r / block * inner + i]);
    }
  }
}

TEST(Pool, KeepsMeansOfRows) {
  for (const std::size_t block : {1, 2, 3, 4, 7, 100}) {
    for (const std::size_t inner : {1, 2, 5, 64}) {
      for (const std::size_t rows : {0, 1, 2, 3, 4, 5, 8, 9, 31, 100}) {
        expect_means<float>(block, inner, rows);
        expect_means<double>(block, inner, rows);
      }
    }
  }
}

TEST(Pool, TheLastBlockUsesItsTrueCount) {
  const std::vector<float> values{1, 3, 5, 7, 11};
  EXPECT_EQ(round_trip(*make_codec("pool", Element::f32), values),
            (std::vector<float>{2, 2, 6, 6, 11}));
  EXPECT_EQ(round_trip(*make_codec("pool:3", Element::f32), values),
            (std::vector<float>{3, 3, 3, 9, 9}));
  EXPECT_EQ(
      round_trip(*make_codec("pool:2x2", Element::f32), std::vector<float>{1, 3, 5, 7, 11, 12}),
      (std::vector<float>{3, 5, 3, 5, 11, 12}));
}

TEST(Pool, FieldsHaveWholeRows) {
  const auto codec = make_codec("pool:2x3", Element::f32);
  const std::string message = message_of([&] { codec->encoded_bytes(40); });
  EXPECT_THAT(message, HasSubstr("10 elements"));
  EXPECT_THAT(message, HasSubstr("rows of 3"));
}

}  // namespace
}  // namespace ebb::test::pool_test
