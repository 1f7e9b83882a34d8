// SPDX-License-Identifier: Apache-2.0
// Where copies within fast memory take time, more memory does not make auto slower.
#include <gtest/gtest.h>

#include <algorithm>

#include "ebb/plan/uniform_mix.h"
#include "tests/plan/random_case.h"
#include "tests/thorough.h"

namespace ebb::test::auto_copies_test {
namespace {

constexpr int kPairs = 10'000;

double seconds_of(const RandomCase& c, Bytes budget) {
  PlanOptions o;
  o.sync = c.sync;
  if (c.slots) {
    o.slots = budget / c.chain.typical().state;
  } else {
    o.budget = budget;
  }
  return make_plan(c.chain, c.platform, o).prediction.seconds;
}

Bytes store_all_bytes(const RandomCase& c) {
  if (c.slots) return c.chain.typical().state * c.chain.steps();
  return least_budget(c.chain, c.platform, {.strategy = "store_all"}).value();
}

// Calls are outside the models of most rows, and uneven chains with slow tiers have no exact one.
bool counts(const RandomCase& c) {
  return c.chain.steps() > 1 && c.chain.call() == 0 &&
         (c.chain.is_uniform() || c.platform.tiers.empty());
}

// The same pairs each time: between the budgets of the grid nothing is proven.
TEST(AutoCopies, MoreMemoryIsNotSlower) {
  CaseMaker maker(3256522460);
  const int pairs = thorough() ? kPairs : 60;
  for (int i = 0; i < pairs && !HasFailure();) {
    RandomCase c = maker.next();
    if (!counts(c)) continue;
    ++i;
    constexpr double forwards[] = {0.1, 0.5, 1, 3};
    const StepCost step = c.chain.typical();
    const double copy = forwards[maker.between(0, 3)] * std::max(step.forward, 0.25);
    c.platform.copy_rate = static_cast<double>(step.state) / copy;
    SCOPED_TRACE(std::to_string(i) + " " + c.text());
    const Bytes unit = c.slots ? step.state : 1;
    const PlanOptions least_for{.slots = c.slots ? std::optional<std::int64_t>(0) : std::nullopt};
    const Bytes least = least_budget(c.chain, c.platform, least_for).value();
    const Bytes all = std::max(store_all_bytes(c), least);
    const Bytes less = least + maker.between(0, (all - least) / unit) * unit;
    const Bytes more = less + maker.between(1, (all - least) / unit + 4) * unit;
    const double seconds = seconds_of(c, more);
    EXPECT_LE(seconds, seconds_of(c, less) * 1.001) << "budgets " << less << " and " << more;
    for (Bytes grid = c.slots ? 1024 * unit : store_all_bytes(c) / 16; grid > 0 && grid >= least;
         grid /= 16) {
      if (grid > more) continue;
      EXPECT_LE(seconds, seconds_of(c, grid) * (1 + 1e-9)) << "budgets " << grid << " and " << more;
    }
  }
}

// Short chains have a table for steps of any kind that tries every cut, long ones a table for
// uniform steps that tries few.
TEST(AutoCopies, BothTablesOfChainCountThem) {
  for (const std::int64_t steps : {20, 70, 128}) {
    for (const Bytes tape : {1, 3, 8}) {
      for (const double copy : {0.03, 0.4, 2.5}) {
        const Chain chain = Chain::uniform(steps, {.backward = 0, .state = 1, .tape = tape});
        const Platform platform{.copy_rate = 1 / copy};
        for (const Bytes room : {1, 4, 9, 30}) {
          const Plan any =
              make_plan(chain, platform, {.strategy = "chain", .budget = room, .working = 0});
          const auto uniform = uniform_mix_policy(steps, 1, tape, room, true, 1e7, copy);
          const auto seconds = static_cast<double>(uniform->forwards(steps, room));
          EXPECT_NEAR(seconds, any.prediction.seconds, 1 + 0.002 * seconds)
              << steps << " steps, tape " << tape << ", copy " << copy << ", room " << room;
        }
      }
    }
  }
}

// What was 50 % slower in the larger memory.
TEST(AutoCopies, TiersAndSlotsToo) {
  const Chain chain = Chain::uniform(39, {.state = 1, .tape = 3});
  Platform platform{.copy_rate = 1.0 / 3};
  const auto seconds = [&](std::int64_t slots) {
    return make_plan(chain, platform, {.slots = slots}).prediction.seconds;
  };
  EXPECT_LE(seconds(38), seconds(20));
  platform.tiers = {{.name = "near", .write_rate = 1, .read_rate = 1}};
  EXPECT_LE(seconds(38), seconds(20));
}

}  // namespace
}  // namespace ebb::test::auto_copies_test
