// SPDX-License-Identifier: Apache-2.0
// A tier that dies under a run: the rest is planned without it, and the gradients keep their bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>

#include "ebb/core/error.h"
#include "ebb/run/run.h"
#include "tests/conformance/walk.h"

namespace ebb::test::failed_tier_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// How many transfers it still makes, and how many it was asked for.
struct Life {
  std::atomic<std::int64_t> left = 1'000'000, asked = 0;
};

class Dying : public Medium {
 public:
  explicit Dying(Life& life) : life_(life) {}
  void reserve(Bytes bytes) override { memory_.resize(static_cast<std::size_t>(bytes)); }
  void write(Bytes offset, std::span<const std::byte> bytes) override {
    live();
    std::copy(bytes.begin(), bytes.end(), memory_.begin() + offset);
  }
  void read(Bytes offset, std::span<std::byte> bytes) override {
    live();
    std::copy_n(memory_.begin() + offset, bytes.size(), bytes.begin());
  }

 private:
  void live() {
    ++life_.asked;
    if (--life_.left < 0) throw Error(ErrorCode::io, "it died");
  }
  Life& life_;
  std::vector<std::byte> memory_;
};

SlowTier dying_tier(Life& life) {
  SlowTier tier;
  tier.name = "disk";
  tier.capacity = 1_MiB;
  tier.open = [&life](const Ledger&) { return std::make_unique<Dying>(life); };
  return tier;
}

std::int64_t forwards_without(TestStep& step, RunOptions options) {
  options.tiers.pop_back();
  options.platform->tiers.pop_back();
  options.strategy = "auto";
  return ebb::Run(step, options).plan().prediction.forwards;
}

// Dies at every transfer in turn.
void check_deaths(TestStep& step, const RunOptions& options, Life& life) {
  const Results expected = stored_all(step);
  const std::int64_t without = forwards_without(step, options);
  std::int64_t transfers = 0;
  {
    ebb::Run run(step, options);
    life.asked = 0;
    EXPECT_TRUE(results_of(run, step) == expected);
    transfers = life.asked;
  }
  ASSERT_GT(transfers, 4);
  const std::int64_t every = thorough() ? 1 : std::max<std::int64_t>(1, transfers / 12);
  for (std::int64_t k = 0; k + 1 < transfers; k += every) {
    SCOPED_TRACE("dies after " + std::to_string(k) + " of " + std::to_string(transfers));
    life.left = 1'000'000;
    ebb::Run run(step, options);
    life.left = k;
    EXPECT_TRUE(results_of(run, step) == expected);
    const Report report = run.report();
    EXPECT_EQ(step.forwards(), report.measured.forwards() + report.measured.extra_forwards);
    // One loss is made good, by a sweep at most.
    EXPECT_LE(report.measured.extra_forwards, without + step.steps());
    EXPECT_LE(report.measured.peak[0], options.budget);
    EXPECT_GT(report.measured.failed_transfers, 0);
    if (report.measured.failed_transfers < 2) continue;
    EXPECT_THAT(report.remarks, Contains(HasSubstr("disk failed and is not used any more")));

    life.asked = 0;
    EXPECT_TRUE(results_of(run, step) == expected);
    EXPECT_EQ(life.asked, 0);
    EXPECT_EQ(run.report().measured.extra_forwards, 0);
    EXPECT_EQ(step.forwards(), without);
    EXPECT_THAT(run.report().remarks, Contains(HasSubstr("not used any more")));
  }
}

TEST(FailedTier, TheRestIsPlannedWithoutIt) {
  for (const auto make : {small_step, uneven_step}) {
    Life life;
    const auto step = make(60);
    RunOptions options = planned(*step, {dying_tier(life)});
    options.strategy = "async";
    options.budget = budgets(*step, options, "async").front();
    SCOPED_TRACE(step->name());
    check_deaths(*step, options, life);
  }
}

// The other tier goes on, under its own number.
TEST(FailedTier, OthersStay) {
  Life life;
  const auto step = small_step(60);
  RunOptions options = planned(*step, {dying_tier(life), memory_tier(1_MiB)});
  options.strategy = "async";
  options.budget = 2048;
  const Results expected = stored_all(*step);
  ebb::Run run(*step, options);
  life.left = 3;
  EXPECT_TRUE(results_of(run, *step) == expected);
  EXPECT_TRUE(results_of(run, *step) == expected);
  expect_as_predicted(run.report());
  EXPECT_EQ(run.report().measured.tiers[0].written.bytes, 0);
}

TEST(FailedTier, StaysGivenUpWhereCostsAreMeasuredAgain) {
  Life life;
  const auto step = small_step(60);
  RunOptions options = planned(*step, {dying_tier(life)});
  options.strategy = "async";
  options.intervals = {6};  // many transfers, however slow steps are measured to be
  options.budget = 2048;
  options.platform.reset();
  options.profile.tier_seconds = 0.001;
  const Results expected = stored_all(*step);
  ebb::Run run(*step, options);
  run.measure_again();
  EXPECT_TRUE(results_of(run, *step) == expected);
  life.left = 0;
  EXPECT_TRUE(results_of(run, *step) == expected);
  ASSERT_THAT(run.report().remarks, Contains(HasSubstr("disk failed and is not used any more")));
  life.asked = 0;
  run.measure_again();
  EXPECT_TRUE(results_of(run, *step) == expected);
  EXPECT_EQ(life.asked, 0);
  EXPECT_LE(run.report().measured.peak[0], options.budget);
  EXPECT_THAT(run.report().remarks, Contains(HasSubstr("disk failed and is not used any more")));
}

// It dies while it is measured: the run goes on as planned, and without it.
TEST(FailedTier, DiesWhileItIsMeasuredAgain) {
  Life life;
  const auto step = small_step(60);
  RunOptions options = planned(*step, {dying_tier(life)});
  options.strategy = "async";
  options.budget = 2048;
  options.platform.reset();
  options.profile.tier_seconds = 0.001;
  const Results expected = stored_all(*step);
  ebb::Run run(*step, options);
  life.left = 0;
  try {
    run.measure_again();
    FAIL() << "measured";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
  }
  EXPECT_TRUE(results_of(run, *step) == expected);
}

TEST(FailedTier, UnknownLengths) {
  Life life;
  const auto step = endless_step(80);
  RunOptions options = planned(*step, {dying_tier(life)});
  options.profile.expected_steps = 80;
  options.chain = seconds_of(80);
  options.budget = 2048;
  ebb::Run whole(*step, options);
  life.asked = 0;
  const Results expected = results_of(whole, *step);
  const std::int64_t transfers = life.asked;
  ASSERT_GT(transfers, 4);
  for (std::int64_t k = 0; k + 1 < transfers; k += std::max<std::int64_t>(1, transfers / 8)) {
    SCOPED_TRACE(k);
    life.left = 1'000'000;
    ebb::Run run(*step, options);
    life.left = k;
    EXPECT_TRUE(results_of(run, *step) == expected);
    EXPECT_EQ(step->forwards(),
              run.report().measured.forwards() + run.report().measured.extra_forwards);
    EXPECT_TRUE(results_of(run, *step) == expected);
  }
}

}  // namespace
}  // namespace ebb::test::failed_tier_test
