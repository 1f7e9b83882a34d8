// SPDX-License-Identifier: Apache-2.0
// Exponentials of the cells against long double, over all that they can be given.
#include "ebb/cell/activations.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace ebb::test::activations_test {
namespace {

// Calls `call` with numbers of all sizes from -most to most.
template <class Call>
void with_floats(float most, Call call) {
  for (float x = most; x > 1e-37F; x *= 0.9997F) {
    call(x);
    call(-x);
  }
  call(0.0F);
}

TEST(Activations, ExponentialsAreGoodToSevenDigits) {
  with_floats(87, [](float x) {
    const long double right = std::exp(static_cast<long double>(x));
    ASSERT_LE(std::abs(exponential(x) / right - 1), 1.2e-7L) << x;
  });
}

TEST(Activations, SigmoidsAndTangentsAreGoodToSevenDigits) {
  with_floats(1e30F, [](float x) {
    const long double wide = x;
    ASSERT_LE(std::abs(sigmoid(x) - 1 / (1 + std::exp(-wide))), 1.2e-7L) << x;
    ASSERT_LE(std::abs(hyperbolic_tangent(x) - std::tanh(wide)), 1.7e-7L) << x;
  });
}

TEST(Activations, TangentsNearZeroAreGoodToThreeUnitsOfTheLastPlace) {
  with_floats(0.5F, [](float x) {
    const long double right = std::tanh(static_cast<long double>(x));
    const float away = std::abs(static_cast<float>(right));
    const float unit = std::nextafter(away, 2.0F) - away;
    ASSERT_LE(std::abs(hyperbolic_tangent(x) - right), 3 * static_cast<long double>(unit)) << x;
  });
}

TEST(Activations, InfinityIsTheEndAndNoNumberStaysNone) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr float none = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(sigmoid(infinity), 1.0F);
  EXPECT_LE(sigmoid(-infinity), 1e-30F);
  EXPECT_EQ(hyperbolic_tangent(infinity), 1.0F);
  EXPECT_EQ(hyperbolic_tangent(-infinity), -1.0F);
  EXPECT_GE(exponential(infinity), 1e38F);
  EXPECT_LE(exponential(-infinity), 1e-37F);
  for (const float x : {none, -none}) {
    EXPECT_TRUE(std::isnan(exponential(x)));
    EXPECT_TRUE(std::isnan(sigmoid(x)));
    EXPECT_TRUE(std::isnan(hyperbolic_tangent(x)));
  }
}

}  // namespace
}  // namespace ebb::test::activations_test
