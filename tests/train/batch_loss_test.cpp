// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/batch_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ebb/core/random.h"

namespace ebb::test::batch_loss_test {
namespace {

using Numbers = std::vector<double>;

constexpr float kNone = std::numeric_limits<float>::quiet_NaN();

TaskShape shape_of(std::int64_t steps, std::int64_t outputs, bool classes, bool every_step) {
  TaskShape shape;
  shape.steps = steps;
  shape.outputs = outputs;
  shape.classes = classes;
  shape.every_step = every_step;
  return shape;
}

TEST(BatchLoss, CrossEntropyByHand) {
  Batch batch;
  batch.classes = {0, 2};
  BatchLoss<double> loss(shape_of(2, 3, true, false), 2);
  loss.set(batch, 1);
  EXPECT_EQ(loss.targets(), 2);
  loss.output(0, Numbers{9, 9, 9, 9, 9, 9});  // not the end
  EXPECT_EQ(loss.score().targets, 0);
  // Shares 1/4, 1/4, 1/2 and 1/7, 2/7, 4/7.
  const Numbers output{0, 0, std::log(2), 0, std::log(2), std::log(4)};
  loss.output(1, output);
  EXPECT_NEAR(loss.score().loss, std::log(4) + std::log(7. / 4), 1e-15);
  EXPECT_EQ(loss.score().correct, 1);
  EXPECT_EQ(loss.score().targets, 2);

  Numbers gradient(6, 99);
  EXPECT_FALSE(loss.gradient(0, output, gradient));
  ASSERT_TRUE(loss.gradient(1, output, gradient));
  const Numbers right{-3. / 4, 1. / 4, 1. / 2, 1. / 7, 2. / 7, -3. / 7};
  for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(gradient[i], right[i], 1e-15) << i;
}

// A net whose outputs are no numbers has no loss of 0.
TEST(BatchLoss, OutputsThatAreNotNumbersAreNotLeftOut) {
  Batch batch;
  batch.targets = {1, kNone};
  BatchLoss<float> loss(shape_of(1, 1, false, false), 2);
  loss.set(batch, 1);
  const std::vector<float> output{kNone, kNone};
  loss.output(0, output);
  EXPECT_TRUE(std::isnan(loss.score().loss));
  std::vector<float> gradient(2);
  ASSERT_TRUE(loss.gradient(0, output, gradient));
  EXPECT_TRUE(std::isnan(gradient[0]));
  EXPECT_EQ(gradient[1], 0);
}

TEST(BatchLoss, SquaredErrorByHand) {
  Batch batch;
  batch.targets = {1, 2, 3, 4};
  BatchLoss<float> loss(shape_of(1, 2, false, false), 2);
  loss.set(batch, 0.5);
  const std::vector<float> output{2, 2, 0, 8};
  loss.output(0, output);
  EXPECT_DOUBLE_EQ(loss.score().loss, 0.5 * (1 + 0) + 0.5 * (9 + 16));
  EXPECT_DOUBLE_EQ(loss.value(), 0.5 * 13);
  EXPECT_EQ(loss.score().correct, 0);
  std::vector<float> gradient(4);
  ASSERT_TRUE(loss.gradient(0, output, gradient));
  EXPECT_EQ(gradient, (std::vector<float>{.5F, 0, -1.5F, 2}));
  loss.forget();
  EXPECT_EQ(loss.score().loss, 0);
  EXPECT_EQ(loss.score().targets, 0);
}

// Outputs so large that their exponentials overflow.
TEST(BatchLoss, LargeOutputs) {
  Batch batch;
  batch.classes = {1};
  BatchLoss<double> loss(shape_of(1, 2, true, false), 1);
  loss.set(batch, 1);
  Numbers gradient(2);
  for (const double far : {600., 1e6}) {
    loss.forget();
    loss.output(0, Numbers{far, 0});
    EXPECT_TRUE(std::isfinite(loss.score().loss));
    EXPECT_GE(loss.score().loss, 600);
    ASSERT_TRUE(loss.gradient(0, Numbers{far, 0}, gradient));
    EXPECT_NEAR(gradient[0], 1, 1e-12);
    EXPECT_NEAR(gradient[1], -1, 1e-12);
  }
  loss.forget();
  loss.output(0, Numbers{kNone, 0});
  EXPECT_TRUE(std::isnan(loss.score().loss));  // so that training sees that it diverged
}

TEST(BatchLoss, WhatIsMaskedDoesNotCount) {
  Batch batch;
  batch.classes = {1, -1, -1, -1, 0, 1};  // [T,B]
  BatchLoss<double> loss(shape_of(3, 2, true, true), 2);
  loss.set(batch, 1);
  EXPECT_EQ(loss.targets(), 3);
  const Numbers output{0, 1, 1, 0};
  Numbers gradient(4, 99);
  for (std::int64_t t = 0; t < 3; ++t) loss.output(t, output);
  EXPECT_EQ(loss.score().targets, 3);
  EXPECT_EQ(loss.score().correct, 1);
  ASSERT_TRUE(loss.gradient(0, output, gradient));
  EXPECT_NE(gradient[0], 0);
  EXPECT_EQ(gradient[2], 0);  // the other sample's
  EXPECT_EQ(gradient[3], 0);
  EXPECT_FALSE(loss.gradient(1, output, gradient));

  Batch numbers;
  numbers.targets = {1, 1, kNone, kNone};  // [B,O]
  BatchLoss<double> squares(shape_of(1, 2, false, false), 2);
  squares.set(numbers, 1);
  EXPECT_EQ(squares.targets(), 1);
  squares.output(0, output);
  EXPECT_EQ(squares.score().loss, 0.5);

  numbers.targets = {1, 1, kNone, 1};  // one number of two
  EXPECT_EQ(squares.targets(), 2);
  squares.forget();
  squares.output(0, output);
  EXPECT_EQ(squares.score().loss, 1);
  ASSERT_TRUE(squares.gradient(0, output, gradient));
  EXPECT_EQ(gradient[2], 0);
  EXPECT_EQ(gradient[3], -1);
}

TEST(BatchLoss, SequencesEndWhereTheirLengthsSay) {
  Batch batch;
  batch.lengths = {3, 1};
  batch.targets = {10, 20};
  BatchLoss<double> last(shape_of(3, 1, false, false), 2);
  last.set(batch, 1);
  EXPECT_EQ(last.targets(), 2);
  Numbers seen;
  for (std::int64_t t = 0; t < 3; ++t) {
    last.forget();
    last.output(t, Numbers{0, 0});
    seen.push_back(last.score().loss);
  }
  EXPECT_EQ(seen, (Numbers{400, 0, 100}));

  batch.targets = {1, 2, 3, 4, 5, 6};  // [T,B]
  BatchLoss<double> all(shape_of(3, 1, false, true), 2);
  all.set(batch, 1);
  EXPECT_EQ(all.targets(), 4);
  for (std::int64_t t = 0; t < 3; ++t) all.output(t, Numbers{0, 0});
  EXPECT_EQ(all.score().loss, 1 + 9 + 25 + 4);
}

// Seen in windows a sequence has the same loss and gradients.
TEST(BatchLoss, Windows) {
  for (const bool every_step : {false, true}) {
    Batch batch;
    batch.lengths = {5, 6, 2};
    batch.classes.resize(every_step ? 18 : 3);
    for (std::size_t i = 0; i < batch.classes.size(); ++i) {
      batch.classes[i] = static_cast<std::int32_t>(i % 4);
    }
    const TaskShape shape = shape_of(6, 4, true, every_step);
    BatchLoss<double> whole(shape, 3), parts(shape, 3);
    whole.set(batch, 0.1);
    parts.set(batch, 0.1);
    for (std::int64_t t = 0; t < 6; ++t) {
      Numbers output(12), one(12), other(12);
      const Random random(1, static_cast<std::uint64_t>(t));
      for (std::size_t i = 0; i < 12; ++i) output[i] = random.normal(i);
      parts.set_window(t / 4 * 4);
      whole.output(t, output);
      parts.output(t % 4, output);
      EXPECT_EQ(whole.gradient(t, output, one), parts.gradient(t % 4, output, other));
      EXPECT_EQ(one, other);
    }
    EXPECT_EQ(whole.score().loss, parts.score().loss);
    EXPECT_EQ(whole.score().targets, every_step ? 13 : 3);
    EXPECT_EQ(parts.targets(), whole.targets());
  }
}

TEST(BatchLoss, GradientIsThatOfFiniteDifferences) {
  for (const bool classes : {false, true}) {
    Batch batch;
    batch.lengths = {2, 1};
    batch.classes = {3, 0, 1, -1};
    for (std::size_t i = 0; i < 16; ++i) {
      batch.targets.push_back(static_cast<float>(Random(3).normal(i)));
    }
    BatchLoss<double> loss(shape_of(2, 4, classes, true), 2);
    loss.set(batch, 0.25);
    for (const std::int64_t t : {0, 1}) {
      Numbers output(8), gradient(8);
      for (std::size_t i = 0; i < 8; ++i) output[i] = Random(4).normal(i);
      ASSERT_TRUE(loss.gradient(t, output, gradient));
      for (std::size_t i = 0; i < 8; ++i) {
        const auto at = [&](double change) {
          Numbers changed = output;
          changed[i] += change;
          loss.forget();
          loss.output(t, changed);
          return loss.value();
        };
        EXPECT_NEAR(gradient[i], (at(1e-5) - at(-1e-5)) / 2e-5, 1e-9) << "t " << t << ", " << i;
      }
    }
  }
}

TEST(BatchLoss, ScoresAddUp) {
  Score score{1, 2, 3};
  score += {10, 20, 30};
  EXPECT_EQ(score.loss, 11);
  EXPECT_EQ(score.correct, 22);
  EXPECT_EQ(score.targets, 33);
}

}  // namespace
}  // namespace ebb::test::batch_loss_test
