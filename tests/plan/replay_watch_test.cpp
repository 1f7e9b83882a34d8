// SPDX-License-Identifier: Apache-2.0
// What a watch is told adds up to what replay returns, for every strategy.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "ebb/plan/replay.h"
#include "ebb/plan/strategies.h"
#include "tests/plan/random_case.h"
#include "tests/plan/same.h"

namespace ebb::test::replay_watch_test {
namespace {

struct Told : ReplayWatch {
  explicit Told(const Machine& machine)
      : peak(1 + machine.platform.tiers.size()), moved(machine.platform.tiers.size()) {}

  void ran(const Action&, double start, double end) override {
    EXPECT_GE(start, last_end);
    last_end = end;
    compute += end - start;
  }
  void copied(const Copy& copy, Bytes bytes, double start, double end) override {
    EXPECT_LE(start, end);
    if (copy.to.is_slow()) {
      moved[static_cast<std::size_t>(copy.to.tier())].written += bytes;
    } else if (copy.from.is_slow()) {
      moved[static_cast<std::size_t>(copy.from.tier())].read += bytes;
    } else {
      in_fast += end - start;
    }
    if (copy.to.is_slow() || copy.from.is_slow()) transfers += end - start;
  }
  void waited(double start, double end) override { stall += end - start; }
  void held(Place place, Bytes bytes, double at) override {
    EXPECT_GE(at, last_held);
    last_held = at;
    Bytes& most = peak[static_cast<std::size_t>(place.id - 1)];
    most = std::max(most, bytes);
  }

  std::vector<Bytes> peak;
  std::vector<Prediction::Traffic> moved;
  double compute = 0, in_fast = 0, transfers = 0, stall = 0, last_end = 0, last_held = 0;
};

void check(const RandomCase& c, const Plan& plan) {
  Told told(plan.machine);
  const auto cursor = plan.cursor();
  const Prediction found = replay(c.chain, plan.machine, *cursor, {.watch = &told});
  const double close = 1e-9 * (found.seconds + 1);
  EXPECT_EQ(told.peak, found.peak);
  EXPECT_EQ(told.moved, found.moved);
  EXPECT_NEAR(told.stall, found.stall_seconds, close);
  const double lane = told.compute + told.in_fast + told.stall + (c.sync ? told.transfers : 0);
  EXPECT_NEAR(lane, found.seconds, close);
}

TEST(ReplayWatch, IsToldWhatAddsUp) {
  CaseMaker maker(test_seed());
  int checked = 0;
  for (int i = 0; i < 40 && !HasFailure(); ++i) {
    const RandomCase c = maker.next();
    SCOPED_TRACE(std::to_string(i) + " " + c.text());
    for (const StrategyRow& row : strategies()) {
      if ((c.slots && row.keeps_tapes) || (row.needs_tier && c.platform.tiers.empty())) continue;
      SCOPED_TRACE(row.name);
      PlanOptions options;
      options.strategy = row.name;
      options.sync = c.sync;
      if (c.slots) options.slots = 1;
      const std::optional<Bytes> least = least_budget(c.chain, c.platform, options);
      if (!least) continue;
      if (c.slots) {
        options.slots = *least / c.chain.typical().state;
      } else {
        options.budget = *least + maker.between(0, 30);
      }
      check(c, make_plan(c.chain, c.platform, options));
      ++checked;
    }
  }
  EXPECT_GE(checked, 200);
}

}  // namespace
}  // namespace ebb::test::replay_watch_test
