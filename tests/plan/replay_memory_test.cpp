// SPDX-License-Identifier: Apache-2.0
// Replay's bytes: the working set, what else is held, budgets and peaks. All worked out by hand.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "ebb/core/error.h"
#include "ebb/plan/replay.h"
#include "tests/plan/vector_cursor.h"

namespace ebb::test::replay_memory_test {
namespace {

constexpr Place kDisk = Place::slow(0);

Machine with_disk(Bytes capacity = kUnlimited) {
  Machine machine;
  machine.platform.tiers = {Tier{.name = "disk", .capacity = capacity}};
  return machine;
}

std::vector<Bytes> peak(const Chain& chain, const Machine& machine, std::vector<Action> actions) {
  VectorCursor cursor(std::move(actions));
  return replay(chain, machine, cursor).peak;
}

std::string refusal(const Chain& chain, Machine machine, Bytes budget,
                    std::vector<Action> actions) {
  machine.platform.fast = budget;
  try {
    peak(chain, machine, std::move(actions));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "";
}

using Peaks = std::vector<Bytes>;

const StepCost kStep{.state = 2, .tape = 5, .adjoint = 30, .scratch = 100};

TEST(ReplayMemory, WorkingSet) {
  // Live state, tape and adjoint of the step reversed next, scratch.
  EXPECT_EQ(peak(Chain::uniform(1, kStep), {}, {Record{0, 1}, Reverse{0, 1}}),
            Peaks{2 + 5 + 30 + 100});
  // The tape's room is kept from the start on.
  EXPECT_EQ(refusal(Chain::uniform(2, kStep), {}, 136, {Advance{0, 1}}),
            "replay: action 0 (advance 0..1): fast holds 137 bytes, 137 of them the working set; "
            "136 are allowed");
}

TEST(ReplayMemory, LiveStatesMayWeighMoreThanKeptOnes) {
  StepCost step = kStep;
  step.live = 9;
  Machine machine;
  machine.start_charged = true;
  EXPECT_EQ(peak(Chain::uniform(1, step), machine,
                 {save(0), Record{0, 1}, Reverse{0, 1}, Drop{Item::state, Place::fast, 0}}),
            Peaks{9 + 5 + 30 + 100 + 2});
  step.live = 1;
  EXPECT_EQ(peak(Chain::uniform(1, step), {}, {Record{0, 1}, Reverse{0, 1}}),
            Peaks{2 + 5 + 30 + 100});
}

TEST(ReplayMemory, ScratchIsHeldWhileStepsRun) {
  // Without its 100 bytes: 2 + 5 + 30 + another 2.
  Machine machine;
  machine.start_charged = true;
  EXPECT_EQ(refusal(Chain::uniform(2, kStep), machine, 38, {save(0)}),
            "replay: action 0 (copy state 0 from work to fast): fast holds 39 bytes, 37 of them "
            "the working set; 38 are allowed");
}

TEST(ReplayMemory, FinalStateIsTheCallers) {
  // The live state is 0 bytes after the last step, so the copy has room for 5 + 30 and a tape.
  const Chain chain = Chain::uniform(2, kStep);
  const std::vector<Action> actions{Record{0, 2}, copy_tape(0, Place::fast, kDisk), Reverse{0, 2},
                                    drop_tape(0, kDisk)};
  EXPECT_EQ(peak(chain, with_disk(), actions), (Peaks{2 + 5 + 30 + 100 + 5, 5}));
  const Chain no_scratch = Chain::uniform(2, {.state = 2, .tape = 5, .adjoint = 30});
  EXPECT_EQ(peak(no_scratch, with_disk(), actions), (Peaks{2 + 5 + 30 + 5, 5}));
}

TEST(ReplayMemory, BudgetOfStates) {
  const Chain chain = Chain::uniform(3, {});
  const std::vector<Action> actions{Advance{0, 1},
                                    save(1),
                                    Advance{1, 2},
                                    Record{2, 3},
                                    Reverse{2, 3},
                                    load(1),
                                    drop_state(1, Place::fast),
                                    Record{1, 2},
                                    Reverse{1, 2},
                                    load(0),
                                    Record{0, 1},
                                    Reverse{0, 1}};
  EXPECT_EQ(peak(chain, {}, actions), Peaks{3 + 1});
  EXPECT_EQ(refusal(chain, {}, 4, actions), "");
  EXPECT_EQ(refusal(chain, {}, 3, actions),
            "replay: action 1 (copy state 1 from work to fast): fast holds 4 bytes, 3 of them the "
            "working set; 3 are allowed");
}

TEST(ReplayMemory, InitialStateIsChargedWhereItIsKept) {
  const Chain chain = Chain::uniform(2, {});
  const std::vector<Action> rest{Advance{0, 1}, Record{1, 2}, Reverse{1, 2},
                                 load(0),       Record{0, 1}, Reverse{0, 1}};
  EXPECT_EQ(peak(chain, {}, rest), Peaks{3});
  Machine machine;
  machine.start_charged = true;
  std::vector<Action> actions{save(0)};
  actions.insert(actions.end(), rest.begin(), rest.end());
  actions.push_back(drop_state(0, Place::fast));
  EXPECT_EQ(peak(chain, machine, actions), Peaks{4});
}

TEST(ReplayMemory, WorkingSetGiven) {
  const Chain chain = Chain::uniform(3, {.state = 2, .tape = 3});
  const std::vector<Action> actions{Record{0, 1}, Record{1, 2}, Record{2, 3}, Reverse{0, 3}};
  Machine machine;
  machine.working = 0;
  EXPECT_EQ(peak(chain, machine, actions), Peaks{6});  // the tape reversed next is free
  machine.working = 10;
  EXPECT_EQ(peak(chain, machine, actions), Peaks{16});
  EXPECT_EQ(refusal(chain, machine, 15, actions),
            "replay: action 1 (record 1..2): fast holds 16 bytes, 10 of them the working set; 15 "
            "are allowed");
  // With one Record the tapes that are not reversed next are held at once.
  EXPECT_EQ(refusal(chain, machine, 15, {Record{0, 3}}),
            "replay: action 0 (record 0..3): fast holds 16 bytes, 10 of them the working set; 15 "
            "are allowed");
}

TEST(ReplayMemory, NextTapeIsNotCountedTwice) {
  const std::vector<Action> actions{Record{0, 1},
                                    copy_tape(0, Place::fast, kDisk),
                                    drop_tape(0, Place::fast),
                                    copy_tape(0, kDisk, Place::fast),
                                    drop_tape(0, kDisk),
                                    Reverse{0, 1}};
  EXPECT_EQ(peak(Chain::uniform(1, {.tape = 7}), with_disk(), actions), (Peaks{1 + 7 + 1, 7}));
}

TEST(ReplayMemory, LargestOfTheStatesAndScratchPassed) {
  const Chain chain = Chain::of({{.state = 1, .tape = 3, .scratch = 0},
                                 {.state = 20, .tape = 3, .scratch = 0},
                                 {.state = 2, .tape = 3, .scratch = 7},
                                 {.state = 4, .tape = 6, .scratch = 2}});
  // Advance passes states 1, 20, 2, 4 and scratch 0, 0, 7 beside tape 6 and adjoint 1.
  EXPECT_EQ(refusal(chain, {}, 33, {Advance{0, 3}}),
            "replay: action 0 (advance 0..3): fast holds 34 bytes, 34 of them the working set; 33 "
            "are allowed");
  // Two steps: states 1, 20, 2, no scratch.
  EXPECT_EQ(refusal(chain, {}, 26, {Advance{0, 2}}),
            "replay: action 0 (advance 0..2): fast holds 27 bytes, 27 of them the working set; 26 "
            "are allowed");
  // One step ends in the largest; the next starts from it.
  EXPECT_EQ(refusal(chain, {}, 26, {Advance{0, 1}}),
            "replay: action 0 (advance 0..1): fast holds 27 bytes, 27 of them the working set; 26 "
            "are allowed");
  EXPECT_EQ(refusal(chain, {}, 33, {Advance{0, 1}, Advance{1, 3}}),
            "replay: action 1 (advance 1..3): fast holds 34 bytes, 34 of them the working set; 33 "
            "are allowed");
  // Record: tapes 3, 3, 3 beside that.
  EXPECT_EQ(refusal(chain, {}, 42, {Record{0, 3}}),
            "replay: action 0 (record 0..3): fast holds 43 bytes, 34 of them the working set; 42 "
            "are allowed");
}

TEST(ReplayMemory, CopyToWorkHoldsTheLargerState) {
  const Chain chain = Chain::of({{.state = 1}, {.state = 9, .tape = 20}, {.state = 1}});
  // The last load overwrites state 1 of 9 bytes beside tape 20 and adjoint 1.
  EXPECT_EQ(refusal(chain, {}, 29,
                    {Advance{0, 1}, save(1), Advance{1, 2}, Record{2, 3}, load(1),
                     drop_state(1, Place::fast), Reverse{2, 3}, load(0)}),
            "replay: action 7 (copy state 0 from fast to work): fast holds 30 bytes, 30 of them "
            "the working set; 29 are allowed");
}

TEST(ReplayMemory, LiveStateOfAReversedStepWeighsNothing) {
  const Chain chain = Chain::of({{.state = 1, .tape = 20}, {.state = 1}, {.state = 9}});
  // When step 0 is next, state 2 of 9 bytes is still live: only state 0, tape 20 and adjoint 1.
  EXPECT_EQ(peak(chain, {},
                 {Advance{0, 2}, Record{2, 3}, Reverse{2, 3}, load(0), Advance{0, 1}, Record{1, 2},
                  Reverse{1, 2}, load(0), Record{0, 1}, Reverse{0, 1}}),
            Peaks{1 + 20 + 1});
  // Beside tape 20 and adjoint 50 of step 0, live state 1 of 9 bytes weighs nothing where that
  // step's reversal is an action of its own, since step 1 is reversed when it is reached.
  const Chain low = Chain::of({{.state = 1, .tape = 20, .adjoint = 50}, {.state = 9}});
  std::vector<Action> actions{Record{0, 2}, load(1), Reverse{0, 2}};
  EXPECT_EQ(peak(low, {}, actions), Peaks{9 + 20 + 50});
  actions = {Record{0, 2}, load(1), Reverse{1, 2}, Reverse{0, 1}};
  EXPECT_EQ(peak(low, {}, actions), Peaks{20 + 50});
}

TEST(ReplayMemory, ReverseIsCheckedStepByStep) {
  const Chain chain =
      Chain::of({{.adjoint = 50}, {.adjoint = 1}, {.tape = 4, .adjoint = 1, .scratch = 2}});
  // Record: state 1, tapes 6, adjoint 1, scratch 2. Reversing step 0: tape 1, adjoint 50.
  EXPECT_EQ(peak(chain, {}, {Record{0, 3}, Reverse{0, 3}}), Peaks{51});
  EXPECT_EQ(peak(chain, {}, {Record{0, 3}, Reverse{2, 3}, Reverse{0, 2}}), Peaks{51});
  EXPECT_EQ(refusal(chain, {}, 50, {Record{0, 3}, Reverse{0, 3}}),
            "replay: action 1 (reverse 0..3): fast holds 51 bytes, 51 of them the working set; 50 "
            "are allowed");
  Machine machine;
  machine.working = 3;
  EXPECT_EQ(peak(chain, machine, {Record{0, 3}, Reverse{0, 3}}), Peaks{3 + 2});
}

TEST(ReplayMemory, ReversedTapesAreFreed) {
  const std::vector<Action> actions{Advance{0, 3}, Record{3, 6}, Reverse{3, 6},
                                    load(0),       Record{0, 3}, Reverse{0, 3}};
  EXPECT_EQ(peak(Chain::uniform(6, {.tape = 10}), {}, actions), Peaks{1 + 30 + 1});
}

TEST(ReplayMemory, WhatLeavesIsHeldStill) {
  const Chain chain = Chain::of({{.state = 1, .tape = 9}, {.state = 5, .tape = 1}});
  EXPECT_EQ(
      refusal(chain, {}, 14,
              {Advance{0, 1}, save(1), Record{1, 2}, Reverse{1, 2}, drop_state(1, Place::fast)}),
      "replay: action 4 (drop state 1 from fast): fast holds 15 bytes, 10 of them the "
      "working set; 14 are allowed");
  EXPECT_EQ(refusal(chain, {}, 14,
                    {Advance{0, 1}, save(1), Record{1, 2}, drop_state(1, Place::fast),
                     Reverse{1, 2}, load(0), Record{0, 1}}),
            "replay: action 6 (record 0..1): fast holds 15 bytes, 15 of them the working set; 14 "
            "are allowed");
}

TEST(ReplayMemory, TiersHaveTheirCapacity) {
  const Chain chain = Chain::uniform(3, {.state = 2, .tape = 3});
  const std::vector<Action> actions{copy_state(0, Place::fast, kDisk),
                                    Record{0, 3},
                                    copy_tape(1, Place::fast, kDisk),
                                    drop_state(0, kDisk),
                                    copy_tape(0, Place::fast, kDisk),
                                    Reverse{0, 3},
                                    drop_tape(0, kDisk),
                                    drop_tape(1, kDisk)};
  EXPECT_EQ(peak(chain, with_disk(6), actions), (Peaks{2 + 1 + 9, 6}));
  EXPECT_EQ(refusal(chain, with_disk(5), kUnlimited, actions),
            "replay: action 4 (copy tape 0 from fast to disk): disk holds 6 bytes; 5 are allowed");
}

TEST(ReplayMemory, HugeChainsNeitherOverflowNorAllocate) {
  const std::int64_t n = 1'000'000'000'000;
  const auto steps = static_cast<double>(n);
  const std::vector<Action> actions{Advance{0, n - 1},
                                    save(n - 1),
                                    Record{n - 1, n},
                                    Reverse{n - 1, n},
                                    drop_state(n - 1, Place::fast),
                                    load(0),
                                    Record{0, n - 1},
                                    copy_tape(n / 2, Place::fast, kDisk),
                                    drop_tape(n / 2, Place::fast),
                                    copy_tape(n / 2, kDisk, Place::fast),
                                    drop_tape(n / 2, kDisk),
                                    Reverse{0, n - 1}};
  VectorCursor cursor(actions);
  const Prediction p = replay(Chain::uniform(n, {}), with_disk(), cursor);
  EXPECT_EQ(p.advances, n - 1);
  EXPECT_EQ(p.records, n);
  EXPECT_EQ(p.seconds, steps - 1 + steps + 2 * steps);
  EXPECT_EQ(p.peak, (Peaks{n + 1, 1}));
  // Tapes of 2^62 bytes: the peak stays at the largest number.
  const StepCost heavy{.tape = Bytes{1} << 62};
  EXPECT_EQ(peak(Chain::uniform(n, heavy), with_disk(), actions),
            (Peaks{kUnlimited, Bytes{1} << 62}));
  EXPECT_EQ(refusal(Chain::uniform(n, heavy), with_disk(), kUnlimited - 1, actions),
            "replay: action 6 (record 0..999999999999): fast holds 9223372036854775807 bytes, "
            "4611686018427387906 of them the working set; 9223372036854775806 are allowed");
  // What was too much to count is not taken away from it.
  EXPECT_EQ(peak(Chain::uniform(4, heavy), {},
                 {Record{0, 4}, drop_tape(0, Place::fast), drop_tape(1, Place::fast),
                  drop_tape(2, Place::fast), drop_tape(3, Place::fast), load(0), Record{0, 4},
                  Reverse{0, 4}}),
            Peaks{kUnlimited});
}

TEST(ReplayMemory, ManyItems) {
  const std::int64_t n = 20'000;
  std::vector<Action> actions;
  for (std::int64_t i = 0; i + 1 < n; ++i) {
    actions.push_back(Advance{i, i + 1});
    actions.push_back(copy_state(i + 1, Place::work, i % 2 == 0 ? kDisk : Place::fast));
  }
  for (std::int64_t i = n; i-- > 0;) {
    const Place place = i > 0 && i % 2 == 1 ? kDisk : Place::fast;
    if (i < n - 1) actions.push_back(copy_state(i, place, Place::work));
    if (i > 0) actions.push_back(drop_state(i, place));
    actions.push_back(Record{i, i + 1});
    actions.push_back(Reverse{i, i + 1});
  }
  EXPECT_EQ(peak(Chain::uniform(n, {}), with_disk(), actions), (Peaks{3 + n / 2 - 1, n / 2}));
}

}  // namespace
}  // namespace ebb::test::replay_memory_test
