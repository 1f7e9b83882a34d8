// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/data/filled.h"
#include "tests/message_of.h"

namespace ebb::test::adding_task_test {
namespace {

using ::testing::HasSubstr;

TEST(Adding, TheSumOfTheTwoMarked) {
  const auto task = make_task({.name = "adding", .steps = 50});
  const std::size_t count = 200;
  std::vector<std::int64_t> samples(count);
  for (std::size_t i = 0; i < count; ++i) samples[i] = static_cast<std::int64_t>(i);
  const Batch batch = filled(*task, Split::train, samples);
  ASSERT_EQ(batch.values.size(), 50 * count * 2);
  ASSERT_EQ(batch.targets.size(), count);
  EXPECT_TRUE(batch.spikes.empty() && batch.classes.empty() && batch.lengths.empty());
  std::set<std::size_t> places;
  double mean = 0;
  for (std::size_t b = 0; b < count; ++b) {
    float sum = 0;
    int marked = 0;
    for (std::size_t t = 0; t < 50; ++t) {
      const float number = batch.values[(t * count + b) * 2];
      const float mark = batch.values[(t * count + b) * 2 + 1];
      EXPECT_TRUE(number >= 0 && number <= 1);
      EXPECT_TRUE(mark == 0 || mark == 1);
      mean += number / static_cast<double>(50 * count);
      if (mark == 0) continue;
      sum += number;
      ++marked;
      places.insert(t);
    }
    EXPECT_EQ(marked, 2);
    EXPECT_EQ(batch.targets[b], sum);
  }
  EXPECT_EQ(places.size(), 50U);  // anywhere
  EXPECT_NEAR(mean, .5, .015);    // five standard errors
}

TEST(Adding, TheSameWheneverAsked) {
  const auto task = make_task({.name = "adding", .steps = 20, .seed = 7});
  const auto again = make_task({.name = "adding", .steps = 20, .seed = 7});
  const auto other = make_task({.name = "adding", .steps = 20, .seed = 8});
  const Batch alone = filled(*task, Split::train, {5});
  const Batch among = filled(*again, Split::train, {9, 5});
  for (std::size_t t = 0; t < 20; ++t) {
    EXPECT_EQ(alone.values[t * 2], among.values[(t * 2 + 1) * 2]);
  }
  EXPECT_EQ(alone.targets[0], among.targets[1]);
  EXPECT_FALSE(same(alone, filled(*task, Split::train, {6})));
  EXPECT_FALSE(same(alone, filled(*task, Split::test, {5})));
  EXPECT_FALSE(same(alone, filled(*other, Split::train, {5})));
}

TEST(Adding, Shape) {
  const auto task = make_task({.name = "adding"});
  EXPECT_EQ(task->shape().steps, 1000);
  EXPECT_FALSE(task->shape().classes || task->shape().spikes || task->shape().every_step);
  EXPECT_EQ(task->samples(Split::train), Task::kEndless);
  EXPECT_EQ(task->samples(Split::test), 1000);
  EXPECT_THAT(message_of([] { make_task({.name = "adding", .steps = 1}); }),
              HasSubstr("task adding: 1 steps; 2 to"));
  // Both are marked then.
  const auto two = make_task({.name = "adding", .steps = 2});
  const Batch batch = filled(*two, Split::test, {3});
  EXPECT_EQ(batch.values[1] + batch.values[3], 2);
}

}  // namespace
}  // namespace ebb::test::adding_task_test
