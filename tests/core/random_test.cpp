// SPDX-License-Identifier: Apache-2.0
#include "ebb/core/random.h"

#include <gtest/gtest.h>

namespace ebb::test::random_test {
namespace {

TEST(Random, IsEvenAndNormal) {
  const Random random(5, 2, 3);
  double sum = 0, squares = 0, even = 0;
  constexpr int count = 200'000;
  for (std::uint64_t i = 0; i < count; ++i) {
    const double x = random.normal(i);
    sum += x;
    squares += x * x;
    even += random.uniform(i);
    EXPECT_LT(random.below(i, 7), 7U);
  }
  EXPECT_NEAR(sum / count, 0, 0.01);
  EXPECT_NEAR(squares / count, 1, 0.01);
  EXPECT_NEAR(even / count, 0.5, 0.005);
}

TEST(Random, StreamsDiffer) {
  EXPECT_NE(Random(1, 2, 3).bits(0), Random(1, 3, 2).bits(0));
  EXPECT_NE(Random(1, 2).bits(0), Random(2, 1).bits(0));
  EXPECT_EQ(Random(1, 2, 3).bits(9), Random(1, 2, 3).bits(9));
}

}  // namespace
}  // namespace ebb::test::random_test
