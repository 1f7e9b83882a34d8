// SPDX-License-Identifier: Apache-2.0
// Against the minimum over every cut.
#include "ebb/plan/cuts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "tests/plan/random_case.h"

namespace ebb::test::cuts_test {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

enum class Kind { convex, nearly_convex, any, partly_infinite };

std::vector<double> function(Kind kind, bool whole, std::mt19937_64& random) {
  const auto below = [&](double most) {
    const double x = std::uniform_real_distribution<double>(0, most)(random);
    return whole ? std::floor(x) : x;
  };
  std::vector<double> out;
  double value = below(5);
  double slope = 0;
  for (int i = 0; i < 60; ++i) {
    slope += kind == Kind::any ? below(20) - below(20) : below(2);
    value += slope;
    const bool rough = kind == Kind::nearly_convex && below(5) < 1;
    const bool infinite = kind == Kind::partly_infinite && (i < 3 || i > 50 || below(6) < 1);
    out.push_back(infinite ? kInfinite : value + (rough ? below(4) : 0));
  }
  return out;
}

TEST(Cuts, FindWhatTryingEveryCutFinds) {
  std::mt19937_64 random(test_seed());
  for (const bool whole : {true, false}) {
    for (const Kind kind : {Kind::convex, Kind::nearly_convex, Kind::any, Kind::partly_infinite}) {
      for (int round = 0; round < 40; ++round) {
        const std::vector<double> left = function(kind, whole, random);
        const std::vector<double> right = function(kind, whole, random);
        Hull a;
        Hull b;
        for (const double value : right) b.add(value);
        CutSearch search(whole ? 1 : 0);
        for (std::size_t t = 0; t < left.size(); ++t) {
          a.add(left[t]);
          double least = kInfinite;
          for (std::size_t y = 0; y <= t; ++y) least = std::min(least, left[y] + right[t - y]);
          double best = kInfinite;
          const auto last = static_cast<std::int64_t>(t);
          const std::int64_t at = search.find(a, b, last, 0, last, 0, best);
          ASSERT_EQ(at < 0, std::isinf(least));
          if (at < 0) continue;
          ASSERT_NEAR(best, least, 1e-9 * (1 + std::abs(least)));
          const auto y = static_cast<std::size_t>(at);
          ASSERT_EQ(best, left[y] + right[t - y]);
        }
      }
    }
  }
}

// Stairs of up to 1 on a convex function.
TEST(Cuts, BendsAreEnoughForStairs) {
  std::mt19937_64 random(test_seed());
  for (const double stair : {0.0, 1.0}) {
    for (int round = 0; round < 40; ++round) {
      std::vector<double> left = function(Kind::convex, false, random);
      std::vector<double> right = function(Kind::convex, false, random);
      for (std::size_t i = 0; i < left.size(); ++i)
        left[i] += stair * static_cast<double>(i / 7 % 2);
      Hull a;
      Hull b;
      for (const double value : right) b.add(value);
      CutSearch search(0, Tried::bends);
      for (std::size_t t = 0; t < left.size(); ++t) {
        a.add(left[t]);
        double least = kInfinite;
        for (std::size_t y = 0; y <= t; ++y) least = std::min(least, left[y] + right[t - y]);
        double best = kInfinite;
        const auto last = static_cast<std::int64_t>(t);
        ASSERT_GE(search.find(a, b, last, 0, last, 0, best), 0);
        ASSERT_GE(best, least);
        ASSERT_LE(best, least + stair + 1e-9 * (1 + std::abs(least)));
      }
    }
  }
}

TEST(Cuts, NothingBetterIsNothingFound) {
  Hull a;
  for (const double value : {3.0, 1.0, 2.0}) a.add(value);
  CutSearch search(1);
  double best = 2;
  EXPECT_EQ(search.find(a, a, 2, 0, 2, 0, best), -1);
  EXPECT_EQ(best, 2);
  best = 3;
  EXPECT_EQ(search.find(a, a, 2, 0, 2, 0, best), 1);
  EXPECT_EQ(best, 2);
}

}  // namespace
}  // namespace ebb::test::cuts_test
