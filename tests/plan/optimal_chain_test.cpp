// SPDX-License-Identifier: Apache-2.0
// `chain`, `msm` and the bound against the oracle in the whole machine: states and tapes, a tape
// restarts, the start is the caller's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ebb/plan/bound.h"
#include "ebb/plan/text.h"
#include "tests/plan/ask.h"
#include "tests/plan/oracle.h"
#include "tests/plan/random_case.h"
#include "tests/thorough.h"

namespace ebb::test::optimal_chain_test {
namespace {

// Sums in another order may differ in the last places.
bool not_after(double a, double b) { return a <= b * (1 + 1e-6) + 1e-9; }

struct Compared {
  double plan = 0, best = 0;
  bool is_gap() const { return !not_after(plan, best); }
};

Compared compare(const Chain& chain, const PlanOptions& options) {
  const Plan plan = make_plan(chain, {}, options);
  const auto best = oracle(chain, plan.machine);
  return {plan.prediction.seconds, best ? best->seconds : plan.prediction.seconds};
}

PlanOptions chain_with(Bytes budget, bool constant_working) {
  PlanOptions o;
  o.strategy = "chain";
  o.budget = budget;
  o.sync = true;
  if (constant_working) o.working = 0;
  return o;
}

void expect_no_gap(const Chain& chain, bool constant_working, Bytes most_extra) {
  const std::optional<Bytes> least = least_budget(chain, {}, chain_with(0, constant_working));
  ASSERT_TRUE(least);
  for (Bytes extra = 0; extra <= most_extra; ++extra) {
    const Compared c = compare(chain, chain_with(*least + extra, constant_working));
    EXPECT_NEAR(c.plan, c.best, 1e-6) << "budget " << *least + extra;
  }
  if (*least == 0) return;
  Machine less;
  less.platform.fast = *least - 1;
  if (constant_working) less.working = 0;
  EXPECT_FALSE(oracle(chain, less)) << "a plan below the least budget " << *least;
}

TEST(OptimalChain, UniformStepsHaveNoGap) {
  for (const double record : {1.0, 2.5}) {
    for (Bytes ratio = 1; ratio <= 4; ++ratio) {
      const StepCost step{.forward = 1,
                          .record = record,
                          .backward = 0.5,
                          .state = 2,
                          .tape = 2 * ratio,
                          .adjoint = 1,
                          .scratch = ratio % 2};
      for (std::int64_t n = 1; n <= (quick() ? 5 : 7); ++n) {
        SCOPED_TRACE(std::to_string(n) + " steps, tape " + std::to_string(step.tape));
        expect_no_gap(Chain::uniform(n, step), true, n == 7 ? 8 : 12);
        expect_no_gap(Chain::uniform(n, step), false, n == 7 ? 8 : 12);
      }
    }
  }
}

// A tape holds the states before and after its step.
Chain uneven_chain(CaseMaker& random, std::int64_t longest = 6) {
  std::vector<StepCost> steps(static_cast<std::size_t>(random.between(1, longest)));
  for (StepCost& s : steps) {
    s.forward = static_cast<double>(random.between(1, 3));
    s.record = s.forward + static_cast<double>(random.between(0, 2));
    s.backward = static_cast<double>(random.between(0, 3));
    s.state = random.between(1, 3);
    s.adjoint = random.between(0, 2);
    s.scratch = random.one_in(2) ? 0 : random.between(1, 3);
    s.live = random.one_in(3) ? s.state + random.between(1, 2) : 0;
  }
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Bytes after = i + 1 < steps.size() ? steps[i + 1].state : 0;
    steps[i].tape = steps[i].state + after + random.between(0, 4);
  }
  return Chain::of(steps);
}

// Where steps differ, `chain` is not optimal. It keeps to segments: a state stays until all that
// lies right of it is reversed, and it is loaded after the reversal before it. The oracle also
// drops a state earlier and leaves steps after it to an earlier state, and it loads before it
// reverses when the next step's working set is the larger one. In these random chains 1 case in
// 5000 has a gap of the first kind, 1 in 25 one of the second.
void expect_few_gaps(bool constant_working, int cases, double share) {
  CaseMaker random(test_seed());
  int gaps = 0;
  for (int i = 0; i < cases; ++i) {
    const Chain chain = uneven_chain(random);
    SCOPED_TRACE(std::to_string(i) + " " + to_json(chain));
    const std::optional<Bytes> least = least_budget(chain, {}, chain_with(0, constant_working));
    ASSERT_TRUE(least);
    const PlanOptions o = chain_with(*least + random.between(0, 14), constant_working);
    const Compared c = compare(chain, o);
    ASSERT_TRUE(not_after(c.best, c.plan)) << c.best << " " << c.plan;
    ASSERT_LE(c.plan, 2 * c.best);
    if (c.is_gap()) ++gaps;
  }
  EXPECT_LE(gaps, share * cases);
  testing::Test::RecordProperty("gaps", gaps);
}

TEST(OptimalChain, UnevenStepsInAConstantWorkingSet) { expect_few_gaps(true, 1000, 0.005); }
TEST(OptimalChain, UnevenSteps) { expect_few_gaps(false, share_of(1000), quick() ? 0.16 : 0.08); }

StepCost sized(Bytes state, Bytes tape, double forward = 1) {
  return {.forward = forward,
          .record = forward,
          .backward = 0,
          .state = state,
          .tape = tape,
          .adjoint = 0};
}

// The smallest example of loading before reversing: tape 0 cannot stay beside the working set of
// step 1, but state 1 can be loaded from it while step 2 waits to be reversed. advance: 6 forwards,
// the oracle 5.
TEST(OptimalChain, GapOfLoadingEarly) {
  const Chain chain = Chain::of({sized(1, 3), sized(1, 4), sized(1, 1)});
  const Compared c = compare(chain, chain_with(5, false));
  EXPECT_EQ(c.best, 5);
  EXPECT_LE(c.plan, 6);
}

// The smallest example of leaving steps to an earlier state: state 1 is dropped once step 2 is
// reversed, to make room for tape 0; step 1 is then run from there.
TEST(OptimalChain, GapOfDroppingEarly) {
  const Chain chain =
      Chain::of({sized(1, 2), sized(1, 5), sized(3, 5), sized(2, 5, 2), sized(2, 6), sized(2, 2)});
  const Compared c = compare(chain, chain_with(3, true));
  EXPECT_EQ(c.best, 15);
  EXPECT_LE(c.plan, 16);
}

// papers.md 1.5: of 105 cases the published recurrence misses the optimum in one, by a forward;
// `chain` in none.
TEST(OptimalChain, TheGapOfMsm) {
  for (Bytes alpha = 1; alpha <= 3; ++alpha) {
    for (std::int64_t t = 1; t <= 7; ++t) {
      for (Bytes m = 0; m <= 4; ++m) {
        SCOPED_TRACE("alpha " + std::to_string(alpha) + ", " + std::to_string(t) + " steps, " +
                     std::to_string(m) + " units");
        const StepCost step{.tape = alpha};
        const Plan plan = plan_for(t, with_extra("msm", m), step);
        const auto best = oracle(Chain::uniform(t, step), plan.machine);
        ASSERT_TRUE(best);
        const bool gap = alpha == 3 && t == 7 && m == 3;
        EXPECT_EQ(plan.prediction.seconds, best->seconds + (gap ? 1 : 0));
        EXPECT_FALSE(plan.optimal);
        EXPECT_EQ(plan_for(t, with_extra("chain", m), step).prediction.seconds, best->seconds);
        if (!gap) continue;
        EXPECT_EQ(plan.prediction.forwards, 14);
      }
    }
  }
}

struct BoundCase {
  Chain chain;
  Machine machine;
};

BoundCase bound_case(CaseMaker& random) {
  const std::int64_t tiers = random.between(0, 2);
  const std::int64_t longest = tiers == 0 ? 6 : 5 - tiers;  // tiers make the oracle slow
  const auto draw = [&](std::int64_t least, std::int64_t most) {
    return static_cast<double>(random.between(least, most));
  };
  BoundCase c{uneven_chain(random, longest), {}};
  if (random.one_in(2)) {
    const Bytes state = random.between(1, 3);
    const StepCost step{.forward = draw(0, 3),
                        .record = draw(0, 4),
                        .backward = draw(0, 2),
                        .state = state,
                        .tape = state * random.between(1, 4),
                        .adjoint = random.between(0, 2),
                        .scratch = random.between(0, 2)};
    c.chain = Chain::uniform(random.between(1, longest), step);
  }
  c.machine.sync = true;
  c.machine.start_charged = random.one_in(3);
  c.machine.states_only = c.machine.start_charged && random.one_in(2);
  if (c.machine.states_only || random.one_in(3)) c.machine.working = 0;
  for (std::int64_t k = 0; k < tiers; ++k) {
    c.machine.platform.tiers.push_back(
        slow_tier(draw(0, 6) / 2, draw(0, 6) / 2, random.between(0, 6), k == 0 ? "near" : "far"));
    if (random.one_in(2)) c.machine.platform.tiers.back().read_rate = 2;
  }
  c.machine.platform.fast = random.between(0, c.machine.working ? 10 : 24);
  return c;
}

TEST(OptimalChain, TheBoundIsBelowEveryPlan) {
  CaseMaker random(test_seed());
  int feasible = 0;
  for (int i = 0; i < share_of(600); ++i) {
    BoundCase c = bound_case(random);
    const auto best = oracle(c.chain, c.machine);
    if (!best) continue;
    ++feasible;
    SCOPED_TRACE(std::to_string(i) + " " + to_json(c.chain) + " " + to_json(c.machine.platform) +
                 (c.machine.working ? " working 0" : "") +
                 (c.machine.states_only ? " states only" : "") +
                 (c.machine.start_charged ? " start charged" : ""));
    ASSERT_LE(bound(c.chain, c.machine).seconds, best->seconds * (1 + 1e-12));
    // Transfers beside compute only help.
    c.machine.sync = false;
    ASSERT_LE(bound(c.chain, c.machine).seconds, best->seconds * (1 + 1e-12));
  }
  EXPECT_GT(feasible, (quick() ? share_of(150) : 300));
}

// States only, and the start is the caller's: one slot more than where it is charged.
TEST(OptimalChain, TheBoundOfStatesWithAFreeStart) {
  Machine machine;
  machine.sync = machine.states_only = true;
  machine.working = 0;
  for (std::int64_t n = 1; n <= 6; ++n) {
    for (machine.platform.fast = 0; machine.platform.fast <= 3; ++machine.platform.fast) {
      const Chain chain = Chain::uniform(n, {});
      const auto best = oracle(chain, machine);
      ASSERT_TRUE(best);
      EXPECT_LE(bound(chain, machine).seconds, best->seconds)
          << n << " steps, " << machine.platform.fast << " bytes";
    }
  }
}

TEST(OptimalChain, TheBoundIsRevolveInSlots) {
  const StepCost step{.forward = 2, .record = 3, .backward = 1};
  for (std::int64_t n = 1; n <= 300; n = n < 20 ? n + 1 : n * 5 / 4) {
    for (std::int64_t slots = 1; slots <= 12; ++slots) {
      const Plan plan = plan_for(n, in_slots("revolve", slots), step);
      EXPECT_NEAR(plan.bound.seconds, plan.prediction.seconds, 1e-9 * plan.prediction.seconds)
          << n << " steps, " << slots << " slots";
    }
  }
}

}  // namespace
}  // namespace ebb::test::optimal_chain_test
