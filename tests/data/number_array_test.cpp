// SPDX-License-Identifier: Apache-2.0
#include "ebb/data/number_array.h"

#include <gtest/gtest.h>

#include <limits>

namespace ebb::test::number_array_test {
namespace {

std::optional<std::size_t> count(std::vector<std::int64_t> shape, std::size_t most) {
  return count_within(shape, most);
}

TEST(CountWithin, TheProductOrNothing) {
  EXPECT_EQ(count({}, 1), 1U);
  EXPECT_EQ(count({}, 0), std::nullopt);
  EXPECT_EQ(count({2, 3, 4}, 24), 24U);
  EXPECT_EQ(count({2, 3, 4}, 23), std::nullopt);
  EXPECT_EQ(count({-1, -1}, 23), std::nullopt);
  EXPECT_EQ(count({0, -1}, 23), std::nullopt);
}

TEST(CountWithin, NoOverflow) {
  constexpr std::int64_t large = std::int64_t{1} << 62;
  constexpr std::size_t all = std::numeric_limits<std::size_t>::max();
  EXPECT_EQ(count({large, 4}, all), std::nullopt);
  EXPECT_EQ(count({large, 3}, all), std::size_t{3} << 62);
  EXPECT_EQ(count({large, large, 0}, 0), 0U);
}

TEST(NumberArray, ShapeText) {
  EXPECT_EQ(shape_text(std::vector<std::int64_t>{}), "[]");
  EXPECT_EQ(shape_text(std::vector<std::int64_t>{3, 4}), "[3,4]");
}

}  // namespace
}  // namespace ebb::test::number_array_test
