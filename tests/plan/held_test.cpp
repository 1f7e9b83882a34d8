// SPDX-License-Identifier: Apache-2.0
// Replay's containers against the standard ones.
#include "ebb/plan/held.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <set>

#include "ebb/plan/largest.h"
#include "tests/thorough.h"

namespace ebb::test::held_test {
namespace {

std::int64_t draw(std::mt19937& random, std::int64_t below) {
  return std::uniform_int_distribution<std::int64_t>(0, below - 1)(random);
}

TEST(TapeRanges, LikeASet) {
  constexpr std::int64_t steps = 60;
  std::mt19937 random(3);
  TapeRanges tapes;
  std::set<std::int64_t> plain;
  for (int i = 0; i < share_of(20'000); ++i) {
    const std::int64_t from = draw(random, steps);
    const std::int64_t to = std::min(steps, from + 1 + draw(random, 6));
    const auto low = plain.lower_bound(from);
    const std::int64_t first = low == plain.end() ? std::numeric_limits<std::int64_t>::max() : *low;
    ASSERT_EQ(tapes.first_held(from), first);
    std::int64_t missing = to - 1;
    while (plain.contains(missing)) --missing;
    ASSERT_EQ(tapes.last_missing(to), missing);
    ASSERT_EQ(tapes.empty(), plain.empty());
    if (first >= to) {
      tapes.insert(from, to);
      for (std::int64_t step = from; step < to; ++step) plain.insert(step);
    } else if (missing < from) {
      tapes.erase(from, to);
      for (std::int64_t step = from; step < to; ++step) plain.erase(step);
    }
    ASSERT_TRUE(plain.empty() || plain.contains(tapes.any()));
    for (std::int64_t step = 0; step < steps; ++step) {
      ASSERT_EQ(tapes.holds(step), plain.contains(step));
    }
  }
}

TEST(Largest, OverEveryRange) {
  std::mt19937 random(4);
  for (const std::int64_t n : {2, 3, 7, 8, 13}) {
    std::vector<StepCost> steps(static_cast<std::size_t>(n));
    for (StepCost& step : steps) {
      step.state = 1 + draw(random, 50);
      step.live = draw(random, 80);
      step.scratch = draw(random, 50);
    }
    const Chain chain = Chain::of(steps);
    Largest largest;
    for (std::int64_t from = 0; from < n; ++from) {
      Largest::Sizes most;
      for (std::int64_t to = from + 1; to <= n; ++to) {
        most.live = std::max(most.live, chain.at(to - 1).live_bytes());
        most.scratch = std::max(most.scratch, chain.at(to - 1).scratch);
        EXPECT_EQ(largest.over(chain, from, to).live, most.live);
        EXPECT_EQ(largest.over(chain, from, to).scratch, most.scratch);
      }
    }
  }
}

}  // namespace
}  // namespace ebb::test::held_test
