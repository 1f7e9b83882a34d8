// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/data/filled.h"
#include "tests/message_of.h"

namespace ebb::test::copy_task_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// With T blank steps: ten symbols, T - 1 blanks, eleven times 9.
void expect_layout(std::int64_t steps) {
  const auto task = make_task({.name = "copy", .steps = steps});
  const std::int64_t count = 40;
  std::vector<std::int64_t> samples;
  for (std::int64_t i = 0; i < count; ++i) samples.push_back(i);
  const Batch batch = filled(*task, Split::train, samples);
  ASSERT_EQ(batch.classes.size(), static_cast<std::size_t>(steps * count));
  std::set<std::int64_t> symbols;
  for (std::int64_t b = 0; b < count; ++b) {
    for (std::int64_t t = 0; t < steps; ++t) {
      const auto at = [&](std::int64_t step) {
        const auto inputs = firing(batch, task->shape(), count, step, b);
        EXPECT_EQ(inputs.size(), 1U);
        return inputs.at(0);
      };
      if (t < 10) {
        symbols.insert(at(t));
      } else {
        ASSERT_EQ(at(t), t < steps - 11 ? 0 : 9) << t;
      }
      ASSERT_EQ(batch.classes[static_cast<std::size_t>(t * count + b)],
                t < steps - 10 ? 0 : at(t - (steps - 10)))
          << t;
    }
  }
  EXPECT_THAT(symbols, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
}

TEST(CopyTask, Layout) {
  expect_layout(21);
  expect_layout(22);
  expect_layout(60);
}

TEST(CopyTask, Shape) {
  const auto task = make_task({.name = "copy"});
  EXPECT_EQ(task->shape().steps, 120);
  EXPECT_EQ(task->shape().inputs, 10);
  EXPECT_EQ(task->shape().outputs, 10);
  EXPECT_TRUE(task->shape().spikes && task->shape().classes && task->shape().every_step);
  EXPECT_EQ(task->samples(Split::train), Task::kEndless);
  EXPECT_EQ(task->samples(Split::test), 1000);
  EXPECT_THAT(message_of([] { make_task({.name = "copy", .steps = 20}); }),
              HasSubstr("task copy: 20 steps; 21 to"));
  EXPECT_TRUE(same(filled(*task, Split::test, {3}), filled(*task, Split::test, {3})));
  EXPECT_FALSE(same(filled(*task, Split::test, {3}), filled(*task, Split::train, {3})));
}

}  // namespace
}  // namespace ebb::test::copy_task_test
