// SPDX-License-Identifier: Apache-2.0
// The table against std::map.
#include "ebb/core/step_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace ebb::test::step_table_test {
namespace {

std::int64_t draw(std::mt19937& random, std::int64_t below) {
  return std::uniform_int_distribution<std::int64_t>(0, below - 1)(random);
}

TEST(StepTable, LikeAMap) {
  std::mt19937 random(1);
  StepTable<double> items;
  std::map<std::int64_t, double> plain;
  for (int i = 0; i < 100'000; ++i) {
    // Steps far apart and close together, in a table that fills and empties.
    const std::int64_t step = draw(random, 100) * (i % 2 == 0 ? 1 : 1'000'000'007);
    double* const value = items.find(step);
    ASSERT_EQ(value != nullptr, plain.contains(step));
    if (value != nullptr) {
      ASSERT_EQ(*value, plain[step]);
      items.erase(step);
      plain.erase(step);
    } else if (draw(random, 1 + (i / 5000) % 3) == 0) {
      items.insert(step, i / 2.0);
      plain[step] = i / 2.0;
    }
    ASSERT_EQ(items.empty(), plain.empty());
    ASSERT_TRUE(plain.empty() || plain.contains(items.any()));
  }
}

TEST(StepTable, Ranges) {
  std::mt19937 random(2);
  for (int i = 0; i < 2000; ++i) {
    StepTable<double> items;
    std::map<std::int64_t, double> plain;
    for (std::int64_t step = 0; step < 200; ++step) {
      if (draw(random, 4) > 0) continue;
      items.insert(step, static_cast<double>(draw(random, 1000)));
      plain[step] = *items.find(step);
    }
    const std::int64_t from = draw(random, 200);
    const std::int64_t to = from + 1 + draw(random, i % 2 == 0 ? 20 : 1'000'000'000'000);
    double latest = 0;
    for (const auto& [step, free] : plain) {
      if (step >= from && step < to) latest = std::max(latest, free);
    }
    double visited = 0;
    items.visit(from, to, [&](std::int64_t, double value) { visited = std::max(visited, value); });
    EXPECT_EQ(visited, latest);
    items.erase(from, to);
    std::erase_if(plain, [&](const auto& p) { return p.first >= from && p.first < to; });
    for (std::int64_t step = 0; step < 200; ++step) {
      ASSERT_EQ(items.find(step) != nullptr, plain.contains(step));
    }
    EXPECT_EQ(items.empty(), plain.empty());
  }
}

}  // namespace
}  // namespace ebb::test::step_table_test
