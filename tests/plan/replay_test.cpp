// SPDX-License-Identifier: Apache-2.0
// The rules of the action machine: what is legal, and what each breach is told. Time and memory:
// replay_time_test.cpp, replay_memory_test.cpp.
#include "ebb/plan/replay.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ebb/core/error.h"
#include "tests/plan/vector_cursor.h"

namespace ebb::test::replay_test {
namespace {

constexpr Place kDisk = Place::slow(0);
constexpr Place kRobot = Place::slow(1);

Machine two_tiers() {
  Machine machine;
  machine.platform.tiers = {Tier{.name = "disk"}, Tier{.name = "robot"}};
  return machine;
}

Prediction run(const Chain& chain, const Machine& machine, std::vector<Action> actions) {
  VectorCursor cursor(std::move(actions));
  return replay(chain, machine, cursor);
}

// What replay says against the actions, or "" when it has nothing to say.
std::string refusal(const Chain& chain, const Machine& machine, std::vector<Action> actions) {
  try {
    run(chain, machine, std::move(actions));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "";
}

std::string refusal(std::vector<Action> actions) {
  return refusal(Chain::uniform(4, {}), two_tiers(), std::move(actions));
}

TEST(Replay, StoreAll) {
  const Prediction p = run(Chain::uniform(4, {}), {}, {Record{0, 4}, Reverse{0, 4}});
  EXPECT_EQ(p.forwards, 4);
  EXPECT_EQ(p.advances, 0);
  EXPECT_EQ(p.records, 4);
  EXPECT_EQ(p.actions, 2);
  EXPECT_EQ(p.seconds, 4 * 1 + 4 * 2);
  EXPECT_EQ(p.stall_seconds, 0);
  EXPECT_EQ(p.peak, std::vector<Bytes>{1 + 1 + 4});  // live state, adjoint, tapes
  EXPECT_TRUE(p.moved.empty());
}

// papers.md 0.4: HSM of 5 steps with 2 slots, 11 forwards.
TEST(Replay, GoldenTraceOfFiveSteps) {
  const Prediction p = run(Chain::uniform(5, {}), {},
                           {Advance{0, 2},
                            save(2),
                            Advance{2, 4},
                            Record{4, 5},
                            Reverse{4, 5},
                            load(2),
                            Advance{2, 3},
                            Record{3, 4},
                            Reverse{3, 4},
                            load(2),
                            Record{2, 3},
                            Reverse{2, 3},
                            drop_state(2, Place::fast),
                            load(0),
                            Advance{0, 1},
                            save(1),
                            Record{1, 2},
                            Reverse{1, 2},
                            drop_state(1, Place::fast),
                            load(0),
                            Record{0, 1},
                            Reverse{0, 1}});
  EXPECT_EQ(p.forwards, 11);
  EXPECT_EQ(p.advances, 6);
  EXPECT_EQ(p.records, 5);
  EXPECT_EQ(p.actions, 22);
  EXPECT_EQ(p.seconds, 11 + 10);
  EXPECT_EQ(p.peak, std::vector<Bytes>{1 + 1 + 1 + 1});  // with one state saved
}

TEST(Replay, NoSteps) {
  const Prediction p = run(Chain::uniform(0, {}), two_tiers(), {});
  EXPECT_EQ(p.actions, 0);
  EXPECT_EQ(p.seconds, 0);
  EXPECT_EQ(p.peak, (std::vector<Bytes>{0, 0, 0}));
  EXPECT_EQ(p.moved.size(), 2U);
  EXPECT_EQ(refusal(Chain::uniform(0, {}), {}, {Advance{0, 1}}),
            "replay: action 0 (advance 0..1): 0 steps are left to reverse; advance must end at 0 "
            "or before");
}

TEST(Replay, AdvanceStartsAtTheLiveState) {
  EXPECT_EQ(refusal({Advance{0, 2}, Advance{3, 4}}),
            "replay: action 1 (advance 3..4): the live state is 2; advance must start there");
}

TEST(Replay, AdvanceRunsSteps) {
  EXPECT_EQ(refusal({Advance{0, 0}}),
            "replay: action 0 (advance 0..0): there are no steps in it; advance must run at least "
            "one");
}

TEST(Replay, AdvanceStaysBelowWhatIsReversed) {
  EXPECT_EQ(refusal({Advance{0, 3}, Record{3, 4}, Reverse{3, 4}, load(0), Advance{0, 4}}),
            "replay: action 4 (advance 0..4): 3 steps are left to reverse; advance must end at 3 "
            "or before");
}

TEST(Replay, RecordFollowsTheRulesOfAdvance) {
  EXPECT_EQ(refusal({Record{1, 2}}),
            "replay: action 0 (record 1..2): the live state is 0; record must start there");
  EXPECT_EQ(refusal({Advance{0, 2}, Record{2, 1}}),
            "replay: action 1 (record 2..1): there are no steps in it; record must run at least "
            "one");
  EXPECT_EQ(refusal({Record{0, 5}}),
            "replay: action 0 (record 0..5): 4 steps are left to reverse; record must end at 4 or "
            "before");
}

TEST(Replay, RecordLeavesNewTapes) {
  EXPECT_EQ(refusal({Advance{0, 2}, Record{2, 4}, load(0), Record{0, 4}}),
            "replay: action 3 (record 0..4): fast holds tape 2 already");
}

TEST(Replay, ReverseGoesFromTheEnd) {
  EXPECT_EQ(refusal({Record{0, 4}, Reverse{0, 3}}),
            "replay: action 1 (reverse 0..3): 4 steps are left to reverse; reverse must end at 4");
  EXPECT_EQ(refusal({Record{0, 4}, Reverse{2, 4}, Reverse{2, 4}}),
            "replay: action 2 (reverse 2..4): 2 steps are left to reverse; reverse must end at 2");
}

TEST(Replay, ReverseRunsSteps) {
  const std::string rule = ": there are no such steps; reverse must run at least one, from 0 on";
  EXPECT_EQ(refusal({Record{0, 4}, Reverse{4, 4}}), "replay: action 1 (reverse 4..4)" + rule);
  EXPECT_EQ(refusal({Record{0, 4}, Reverse{-1, 4}}), "replay: action 1 (reverse -1..4)" + rule);
}

TEST(Replay, ReverseNeedsTheTapes) {
  EXPECT_EQ(refusal({Reverse{3, 4}}), "replay: action 0 (reverse 3..4): fast does not hold tape 3");
  EXPECT_EQ(refusal({Record{0, 4}, drop_tape(1, Place::fast), Reverse{0, 4}}),
            "replay: action 2 (reverse 0..4): fast does not hold tape 1");
}

TEST(Replay, CopyNeedsTwoPlaces) {
  EXPECT_EQ(refusal({copy_state(0, Place::fast, Place::slow(2))}),
            "replay: action 0 (copy state 0 from fast to place 4): there is no place 4");
  EXPECT_EQ(refusal({copy_state(0, Place{-1}, Place::work)}),
            "replay: action 0 (copy state 0 from place -1 to work): there is no place -1");
  EXPECT_EQ(refusal({copy_state(0, Place::fast, Place::fast)}),
            "replay: action 0 (copy state 0 from fast to fast): source and destination are the "
            "same");
  EXPECT_EQ(refusal({copy_state(0, Place::fast, kDisk), copy_state(0, kDisk, kRobot)}),
            "replay: action 1 (copy state 0 from disk to robot): both places are slow; copy from "
            "one to the other by way of fast");
}

TEST(Replay, CopyNeedsTheItem) {
  EXPECT_EQ(refusal({load(2)}),
            "replay: action 0 (copy state 2 from fast to work): fast does not hold it");
  EXPECT_EQ(refusal({Advance{0, 2}, save(1)}),
            "replay: action 1 (copy state 1 from work to fast): work does not hold it");
  EXPECT_EQ(refusal({copy_state(0, kDisk, Place::work)}),
            "replay: action 0 (copy state 0 from disk to work): disk does not hold it");
  EXPECT_EQ(refusal({copy_tape(3, Place::fast, kDisk)}),
            "replay: action 0 (copy tape 3 from fast to disk): fast does not hold it");
  EXPECT_EQ(refusal({copy_tape(3, kDisk, Place::fast)}),
            "replay: action 0 (copy tape 3 from disk to fast): disk does not hold it");
}

TEST(Replay, CopyGoesWhereTheItemIsNot) {
  EXPECT_EQ(refusal({Advance{0, 2}, save(2), save(2)}),
            "replay: action 2 (copy state 2 from work to fast): fast holds it already");
  EXPECT_EQ(refusal({load(0)}),
            "replay: action 0 (copy state 0 from fast to work): work holds it already");
  EXPECT_EQ(refusal({copy_state(0, Place::fast, kDisk), copy_state(0, Place::work, kDisk)}),
            "replay: action 1 (copy state 0 from work to disk): disk holds it already");
  EXPECT_EQ(
      refusal({Record{0, 1}, copy_tape(0, Place::fast, kDisk), copy_tape(0, kDisk, Place::fast)}),
      "replay: action 2 (copy tape 0 from disk to fast): fast holds it already");
}

TEST(Replay, CopyNamesAStepOfTheChain) {
  EXPECT_EQ(refusal({Record{0, 4}, copy_tape(4, Place::fast, kDisk)}),
            "replay: action 1 (copy tape 4 from fast to disk): there is no such step; the chain "
            "has 4");
  EXPECT_EQ(refusal({copy_state(-1, Place::fast, kDisk)}),
            "replay: action 0 (copy state -1 from fast to disk): there is no such step; the chain "
            "has 4");
}

TEST(Replay, StatesOfReversedStepsAreNotCopied) {
  EXPECT_EQ(refusal({Advance{0, 3}, save(3), Record{3, 4}, Reverse{3, 4}, load(3)}),
            "replay: action 4 (copy state 3 from fast to work): 3 steps are left to reverse; only "
            "states below 3 may be copied");
}

TEST(Replay, TapesAreNeverInWork) {
  EXPECT_EQ(refusal({Record{0, 1}, copy_tape(0, Place::fast, Place::work)}),
            "replay: action 1 (copy tape 0 from fast to work): work holds the live state; a tape "
            "is never there");
  EXPECT_EQ(refusal({copy_tape(0, Place::work, Place::fast)}),
            "replay: action 0 (copy tape 0 from work to fast): work holds the live state; a tape "
            "is never there");
}

TEST(Replay, TapeHoldsTheStateAfterIt) {
  const Chain chain = Chain::uniform(3, {});
  // Restart at 1 from tape 0; also straight to a slow tier.
  EXPECT_EQ(refusal(chain, two_tiers(),
                    {Record{0, 1}, Advance{1, 2}, Record{2, 3}, Reverse{2, 3}, load(1),
                     Record{1, 2}, Reverse{1, 2}, Reverse{0, 1}}),
            "");
  EXPECT_EQ(refusal(chain, two_tiers(),
                    {Record{0, 1}, copy_state(1, Place::fast, kDisk), Record{1, 3}, Reverse{0, 3},
                     drop_state(1, kDisk)}),
            "");
  // It holds the state before it too, but only the one after restarts.
  EXPECT_EQ(refusal({Advance{0, 1}, Record{1, 2}, load(1)}),
            "replay: action 2 (copy state 1 from fast to work): fast does not hold it");
  // A tape in a slow tier must come back first.
  EXPECT_EQ(refusal({Record{0, 1}, copy_tape(0, Place::fast, kDisk), Advance{1, 2},
                     copy_state(1, kDisk, Place::work)}),
            "replay: action 3 (copy state 1 from disk to work): disk does not hold it");
}

TEST(Replay, SingleTapesLeaveTheMiddleOfARange) {
  const Prediction p =
      run(Chain::uniform(10, {}), two_tiers(),
          {Record{0, 10}, copy_tape(4, Place::fast, kDisk), drop_tape(4, Place::fast),
           drop_tape(7, Place::fast), Reverse{8, 10}, load(7), Record{7, 8}, Reverse{5, 8},
           copy_tape(4, kDisk, Place::fast), drop_tape(4, kDisk), Reverse{0, 5}});
  EXPECT_EQ(p.records, 11);
  EXPECT_EQ(p.seconds, 11 + 20);
}

TEST(Replay, DropNeedsTheItem) {
  EXPECT_EQ(refusal({drop_state(0, Place::work)}),
            "replay: action 0 (drop state 0 from work): the live state is overwritten, never "
            "dropped");
  EXPECT_EQ(refusal({drop_state(1, Place::fast)}),
            "replay: action 0 (drop state 1 from fast): fast does not hold it");
  EXPECT_EQ(refusal({drop_tape(1, Place::fast)}),
            "replay: action 0 (drop tape 1 from fast): fast does not hold it");
  EXPECT_EQ(refusal({drop_tape(-1, kDisk)}),
            "replay: action 0 (drop tape -1 from disk): disk does not hold it");
  EXPECT_EQ(refusal({drop_state(0, Place::slow(5))}),
            "replay: action 0 (drop state 0 from place 7): there is no place 7");
  // A state inside a tape is not kept by itself.
  EXPECT_EQ(refusal({Record{0, 1}, drop_state(1, Place::fast)}),
            "replay: action 1 (drop state 1 from fast): fast does not hold it");
}

TEST(Replay, InitialStateOfTheCaller) {
  EXPECT_EQ(refusal({drop_state(0, Place::fast)}),
            "replay: action 0 (drop state 0 from fast): the initial state is the caller's own; it "
            "cannot be dropped");
  EXPECT_EQ(refusal({save(0)}),
            "replay: action 0 (copy state 0 from work to fast): fast holds it already");
}

TEST(Replay, InitialStateThatIsCharged) {
  const Chain chain = Chain::uniform(2, {});
  Machine machine;
  machine.start_charged = true;
  EXPECT_EQ(refusal(chain, machine, {Advance{0, 1}, load(0)}),
            "replay: action 1 (copy state 0 from fast to work): fast does not hold it");
  EXPECT_EQ(refusal(chain, machine,
                    {save(0), Advance{0, 1}, Record{1, 2}, Reverse{1, 2}, load(0),
                     drop_state(0, Place::fast), Record{0, 1}, Reverse{0, 1}}),
            "");
}

TEST(Replay, StatesOnly) {
  const Chain chain = Chain::uniform(4, {});
  Machine machine = two_tiers();
  machine.states_only = true;
  EXPECT_EQ(refusal(chain, machine, {Advance{0, 2}, Record{2, 4}}),
            "replay: action 1 (record 2..4): only states may be kept; record must run the step "
            "reversed next, 3, alone");
  EXPECT_EQ(refusal(chain, machine, {Advance{0, 2}, Record{2, 3}}),
            "replay: action 1 (record 2..3): only states may be kept; record must run the step "
            "reversed next, 3, alone");
  EXPECT_EQ(
      refusal(chain, machine, {Advance{0, 3}, Record{3, 4}, copy_tape(3, Place::fast, kDisk)}),
      "replay: action 2 (copy tape 3 from fast to disk): only states may be kept; a tape is "
      "not copied");
}

TEST(Replay, EndsWithEverythingReversed) {
  EXPECT_EQ(refusal({}), "replay: after the last action 4 of 4 steps are not reversed");
  EXPECT_EQ(refusal({Record{0, 4}, Reverse{1, 4}}),
            "replay: after the last action 1 of 4 steps are not reversed");
}

TEST(Replay, EndsWithNothingKept) {
  const Action reverse = Reverse{0, 4};
  EXPECT_EQ(refusal({Advance{0, 1}, save(1), load(0), Record{0, 4}, reverse}),
            "replay: after the last action fast holds state 1; a plan drops all it has kept");
  EXPECT_EQ(refusal({copy_state(0, Place::fast, kRobot), Record{0, 4}, reverse}),
            "replay: after the last action robot holds state 0; a plan drops all it has kept");
  EXPECT_EQ(refusal({Record{0, 4}, copy_tape(2, Place::fast, kDisk), reverse}),
            "replay: after the last action disk holds tape 2; a plan drops all it has kept");
  EXPECT_EQ(refusal({Record{0, 4}, copy_tape(2, Place::fast, kDisk), reverse,
                     copy_tape(2, kDisk, Place::fast), drop_tape(2, kDisk)}),
            "replay: after the last action fast holds tape 2; a plan drops all it has kept");
}

TEST(Replay, RefusesMachinesThatMakeNoSense) {
  Machine machine = two_tiers();
  machine.working = -1;
  EXPECT_EQ(refusal(Chain::uniform(1, {}), machine, {}),
            "replay: the working set is -1 bytes; it must be 0 or more");
  machine.platform.tiers[1].name = "disk";
  EXPECT_EQ(refusal(Chain::uniform(1, {}), machine, {}), "platform: two tiers are named 'disk'");
}

TEST(Replay, LengthUnknown) {
  const std::vector<Action> sweep{Advance{0, 4}, save(4), Advance{4, 8}, save(8), Advance{8, 12}};
  const auto way_back = [](std::int64_t n) {
    std::vector<Action> back;
    for (std::int64_t i = n - 1; i >= 0; --i) {
      const std::int64_t start = i >= 4 ? 4 : 0;
      back.push_back(load(start));
      if (i > start) back.push_back(Advance{start, i});
      back.push_back(Record{i, i + 1});
      back.push_back(Reverse{i, i + 1});
      if (i == 4) back.push_back(drop_state(4, Place::fast));
    }
    return back;
  };
  const ReplayOptions unknown{.length_unknown = true};
  // The second Advance passes the end of 6 steps and reaches the end of 8.
  VectorCursor six(sweep, way_back);
  const Prediction p = replay(Chain::uniform(6, {}), {}, six, unknown);
  EXPECT_EQ(p.advances, 6 + 1 + 3 + 2 + 1);
  EXPECT_EQ(p.records, 6);
  EXPECT_EQ(p.actions, 3 + 5 * 4 + 3);
  VectorCursor eight(sweep, way_back);
  EXPECT_EQ(replay(Chain::uniform(8, {}), {}, eight, unknown).advances, 8 + 6 + 6);
  VectorCursor none(sweep, way_back);
  EXPECT_EQ(replay(Chain::uniform(0, {}), {}, none, unknown).actions, 0);

  VectorCursor too_short({Advance{0, 2}}, way_back);
  EXPECT_THROW(replay(Chain::uniform(3, {}), {}, too_short, unknown), Error);
  VectorCursor knows({Advance{0, 3}});
  EXPECT_THROW(replay(Chain::uniform(3, {}), {}, knows, unknown), Error);
}

}  // namespace
}  // namespace ebb::test::replay_test
