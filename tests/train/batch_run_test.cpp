// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/batch_run.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "ebb/core/bits.h"
#include "ebb/train/prediction_check.h"

namespace ebb::test::batch_run_test {
namespace {

// How many iterations until they are found to be wrong; up to `most`.
std::optional<int> found_after(PredictionCheck& check, double predicted, double took,
                               int most = 20) {
  for (int i = 1; i <= most; ++i) {
    if (check.look(predicted, took)) return i;
  }
  return {};
}

TEST(PredictionCheck, FindsWhatIsWrongEitherWay) {
  PredictionCheck faster, slower;
  EXPECT_EQ(found_after(faster, 0.4, 0.15), 4);
  EXPECT_EQ(found_after(slower, 0.15, 0.4), 4);
}

TEST(PredictionCheck, LeavesAloneWhatIsRightOrShort) {
  PredictionCheck right, shorter;
  EXPECT_EQ(found_after(right, 0.4, 0.3), std::nullopt);
  EXPECT_EQ(found_after(right, 0.4, 0.1), std::nullopt) << "once right, it is right";
  EXPECT_EQ(found_after(shorter, 0.04, 0.004), std::nullopt);
}

TEST(PredictionCheck, LooksAtTheFastestAfterTheFirst) {
  PredictionCheck check;
  EXPECT_FALSE(check.look(0.1, 0.01));  // the first does not count
  for (const double took : {0.5, 0.1, 0.9}) EXPECT_FALSE(check.look(0.1, took));
}

TEST(PredictionCheck, EndsWhereMeasuringDoesNotHelp) {
  PredictionCheck check;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(found_after(check, 0.4, 0.1), 4);
  EXPECT_EQ(found_after(check, 0.4, 0.1), std::nullopt);
}

constexpr std::int64_t kSteps = 160, kInputs = 1024, kBatch = 32;

// Spikes at every input, or at none: what a time step costs depends on them.
Batch batch_of(bool loud) {
  Batch batch;
  const auto words = static_cast<std::size_t>(kSteps * kBatch * words_of(kInputs));
  batch.spikes.assign(words, loud ? ~std::uint64_t{0} : 0);
  batch.spikes.front() = 1;  // something to learn from
  batch.classes.assign(kBatch, 1);
  return batch;
}

class Learned {
 public:
  explicit Learned(const Batch& sample, const char* budget = "20%")
      : run_(options(budget), shape(), {}, 0, 1, sample) {}

  std::vector<float> gradient(const Batch& batch, std::uint64_t iteration) {
    run_.learn(batch, 1.0 / kBatch, iteration, {});
    return {run_.gradient().begin(), run_.gradient().end()};
  }
  const std::optional<WrongPrediction>& planned_again() const { return run_.planned_again(); }
  double predicted() const { return run_.run().plan().prediction.seconds; }

 private:
  static TrainOptions options(const char* budget) {
    TrainOptions options;
    options.batch = kBatch;
    options.layer = {.cell = "lif", .hidden = 256};
    options.budget = budget;
    options.threads = 1;
    return options;
  }
  static TaskShape shape() {
    TaskShape shape;
    shape.steps = kSteps;
    shape.inputs = kInputs;
    shape.outputs = 2;
    shape.spikes = shape.classes = true;
    return shape;
  }

  BatchRun<float> run_;
};

TEST(BatchRun, MeasuresAgainWhereCostsProveWrongAndGradientsStay) {
  const Batch loud = batch_of(true), silent = batch_of(false);
  Learned misled(loud), right(silent);
  const double before = misled.predicted();
  ASSERT_GT(before, 0.05) << "too short to be looked at";
  int again = 0;
  for (std::uint64_t i = 0; i < 6; ++i) {
    ASSERT_EQ(misled.gradient(silent, i), right.gradient(silent, i)) << i;
    if (!misled.planned_again()) continue;
    ++again;
    EXPECT_EQ(i, 4U);
    EXPECT_EQ(misled.planned_again()->predicted, before);
    EXPECT_LT(misled.planned_again()->took, before);
    EXPECT_LT(misled.predicted(), before / 1.5);
  }
  EXPECT_EQ(again, 1);
}

TEST(BatchRun, DoesNotMeasureAgainWhereEverythingIsKept) {
  const Batch silent = batch_of(false);
  Learned misled(batch_of(true), "unlimited");
  ASSERT_GT(misled.predicted(), 0.05) << "too short to be looked at";
  for (std::uint64_t i = 0; i < 6; ++i) {
    misled.gradient(silent, i);
    EXPECT_FALSE(misled.planned_again()) << i;
  }
}

}  // namespace
}  // namespace ebb::test::batch_run_test
