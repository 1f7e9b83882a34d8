// SPDX-License-Identifier: Apache-2.0
// Replay's clock. Every number is worked out by hand; [a,b) in a comment is a transfer on its lane.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "ebb/plan/replay.h"
#include "tests/plan/vector_cursor.h"

namespace ebb::test::replay_time_test {
namespace {

constexpr Place kDisk = Place::slow(0);
constexpr Place kRobot = Place::slow(1);

// A forward takes 1, a backward 2; on disk a state takes 2 either way, a tape 4.
Chain chain_of(std::int64_t steps) { return Chain::uniform(steps, {.state = 2, .tape = 4}); }

Machine with_disk() {
  Machine machine;
  machine.platform.tiers = {Tier{.name = "disk", .write_rate = 1, .read_rate = 1}};
  return machine;
}

Prediction run(const Chain& chain, const Machine& machine, std::vector<Action> actions) {
  VectorCursor cursor(std::move(actions));
  return replay(chain, machine, cursor);
}

void expect_times(const Prediction& p, double seconds, double stall) {
  EXPECT_EQ(p.seconds, seconds);
  EXPECT_EQ(p.stall_seconds, stall);
}

TEST(ReplayTime, TransfersHideBehindCompute) {
  const Prediction p = run(chain_of(2), with_disk(),
                           {Advance{0, 1}, save(1), copy_state(1, Place::fast, kDisk),  // [1,3)
                            Record{1, 2}, Reverse{1, 2}, drop_state(1, Place::fast),    // at 4
                            drop_state(1, kDisk), load(0), Record{0, 1}, Reverse{0, 1}});
  expect_times(p, 3 * 1 + 2 * 2, 0);
  EXPECT_EQ(p.moved, (std::vector<Prediction::Traffic>{{.written = 2, .read = 0}}));
}

TEST(ReplayTime, ComputeWaitsForTransfersOutOfWork) {
  expect_times(run(chain_of(2), with_disk(),
                   {Advance{0, 1}, copy_state(1, Place::work, kDisk),  // [1,3)
                    Record{1, 2},                                      // stalls 2, ends at 4
                    Reverse{1, 2}, drop_state(1, kDisk), load(0), Record{0, 1}, Reverse{0, 1}}),
               9, 2);
}

TEST(ReplayTime, CopyToWorkWaitsForTransfersOutOfWork) {
  expect_times(run(chain_of(2), with_disk(),
                   {Advance{0, 1}, copy_state(1, Place::work, kDisk),  // [1,3)
                    load(0),                                           // stalls 2
                    Record{0, 2}, drop_state(1, kDisk), Reverse{0, 2}}),
               3 + 2 + 4, 2);
}

TEST(ReplayTime, CopyToWorkWaitsForTransfersIntoWork) {
  expect_times(run(chain_of(1), with_disk(),
                   {copy_state(0, Place::fast, kDisk),  // [0,2)
                    Record{0, 1},                       // ends at 1
                    copy_state(0, kDisk, Place::work),  // [2,4)
                    Reverse{0, 1}, drop_state(0, kDisk)}),
               4, 1);  // the drop waits from 3 to 4
  expect_times(run(chain_of(2), with_disk(),
                   {copy_state(0, Place::fast, kDisk),                   // [0,2)
                    Advance{0, 1}, save(1),                              // ends at 1
                    copy_state(0, kDisk, Place::work),                   // [2,4)
                    load(1),                                             // stalls 3
                    Record{1, 2}, Reverse{1, 2}, load(0), Record{0, 1},  // at 8
                    Reverse{0, 1}, drop_state(0, kDisk), drop_state(1, Place::fast)}),
               4 + 1 + 2 + 1 + 2, 3);
}

TEST(ReplayTime, DropWaitsForTransfersOutOfTheItem) {
  expect_times(run(chain_of(2), with_disk(),
                   {Advance{0, 1}, save(1), copy_state(1, Place::fast, kDisk),  // [1,3)
                    drop_state(1, Place::fast),                                 // stalls 2
                    Record{1, 2}, Reverse{1, 2}, load(0), Record{0, 1}, Reverse{0, 1},
                    drop_state(1, kDisk)}),
               9, 2);
}

TEST(ReplayTime, DropWaitsForTransfersIntoTheItem) {
  expect_times(run(chain_of(2), with_disk(),
                   {Advance{0, 1}, save(1), copy_state(1, Place::fast, kDisk),  // [1,3)
                    drop_state(1, kDisk),                                       // stalls 2
                    Record{1, 2}, Reverse{1, 2}, load(0), Record{0, 1}, Reverse{0, 1},
                    drop_state(1, Place::fast)}),
               9, 2);
}

TEST(ReplayTime, TransfersOfOneDirectionQueue) {
  expect_times(run(chain_of(2), with_disk(),
                   {copy_state(0, Place::fast, kDisk),                          // [0,2)
                    Advance{0, 1}, save(1), copy_state(1, Place::fast, kDisk),  // [2,4)
                    drop_state(1, Place::fast),                                 // stalls 3
                    Record{1, 2}, Reverse{1, 2}, load(0), Record{0, 1}, Reverse{0, 1},
                    drop_state(0, kDisk), drop_state(1, kDisk)}),
               4 + 1 + 2 + 1 + 2, 3);
}

TEST(ReplayTime, TiersHaveTheirOwnLanes) {
  Machine machine = with_disk();
  machine.platform.tiers.push_back(Tier{.name = "robot", .write_rate = 1});
  expect_times(run(chain_of(2), machine,
                   {copy_state(0, Place::fast, kDisk),                           // [0,2)
                    Advance{0, 1}, save(1), copy_state(1, Place::fast, kRobot),  // [1,3)
                    drop_state(1, Place::fast),                                  // stalls 2
                    Record{1, 2}, Reverse{1, 2}, load(0), Record{0, 1}, Reverse{0, 1},
                    drop_state(0, kDisk), drop_state(1, kRobot)}),
               3 + 1 + 2 + 1 + 2, 2);
}

TEST(ReplayTime, DirectionsShareALaneWithoutDuplex) {
  const std::vector<Action> actions{copy_state(0, Place::fast, kDisk),  // write [0,2)
                                    Advance{0, 2},
                                    save(2),
                                    copy_state(2, Place::fast, kDisk),  // write [2,4)
                                    copy_state(0, kDisk, Place::work),  // read [2,4) or [4,6)
                                    Advance{0, 1},                      // stalls 2 or 4
                                    load(2),
                                    Record{2, 3},
                                    Reverse{2, 3},
                                    load(0),
                                    Record{0, 2},
                                    Reverse{0, 2},
                                    drop_state(0, kDisk),
                                    drop_state(2, kDisk),
                                    drop_state(2, Place::fast)};
  Machine machine = with_disk();
  expect_times(run(chain_of(3), machine, actions), 2 + 2 + 1 + 1 + 2 + 2 + 4, 2);
  machine.platform.tiers[0].duplex = false;
  expect_times(run(chain_of(3), machine, actions), 2 + 4 + 1 + 1 + 2 + 2 + 4, 4);
}

std::vector<Action> reload(bool early) {
  std::vector<Action> actions{Advance{0, 1}, copy_state(1, Place::work, kDisk),  // [1,3)
                              Advance{1, 2},                                     // stalls 2
                              Record{2, 3}};                                     // ends at 5
  if (early) actions.push_back(copy_state(1, kDisk, Place::fast));               // [5,7)
  actions.push_back(Reverse{2, 3});                                              // ends at 7
  if (!early) actions.push_back(copy_state(1, kDisk, Place::fast));              // [7,9)
  const std::vector<Action> rest{load(1),
                                 Record{1, 2},
                                 Reverse{1, 2},
                                 load(0),
                                 Record{0, 1},
                                 Reverse{0, 1},
                                 drop_state(1, Place::fast),
                                 drop_state(1, kDisk)};
  actions.insert(actions.end(), rest.begin(), rest.end());
  return actions;
}

TEST(ReplayTime, PrefetchHidesARead) {
  expect_times(run(chain_of(3), with_disk(), reload(true)), 7 + 1 + 2 + 1 + 2, 2);
  expect_times(run(chain_of(3), with_disk(), reload(false)), 7 + 2 + 1 + 2 + 1 + 2, 4);
}

TEST(ReplayTime, SyncTakesTurns) {
  Machine machine = with_disk();
  machine.sync = true;
  // 4 forwards and a write and a read of a state, 3 backwards.
  expect_times(run(chain_of(3), machine, reload(true)), 5 + 2 + 2 + 6, 0);
  expect_times(run(chain_of(3), machine, reload(false)), 5 + 2 + 2 + 6, 0);
}

TEST(ReplayTime, TransfersWaitForTheirSource) {
  expect_times(run(chain_of(2), with_disk(),
                   {Advance{0, 1}, copy_state(1, Place::work, kDisk),  // write [1,3)
                    copy_state(1, kDisk, Place::fast),                 // read [3,5)
                    drop_state(1, kDisk),                              // stalls 4
                    Record{1, 2}, Reverse{1, 2}, load(0), Record{0, 1}, Reverse{0, 1},
                    drop_state(1, Place::fast)}),
               5 + 1 + 2 + 1 + 2, 4);
}

TEST(ReplayTime, FirstComeFirstServedEvenWhenTheFirstWaits) {
  expect_times(run(chain_of(2), with_disk(),
                   {copy_state(0, Place::fast, kDisk),                 // write [0,2)
                    Advance{0, 1}, copy_state(1, Place::work, kDisk),  // write [2,4)
                    copy_state(1, kDisk, Place::fast),                 // read [4,6)
                    copy_state(0, kDisk, Place::work),  // stalls 3 till 4; read [6,8)
                    Advance{0, 1},                      // stalls 4
                    Record{1, 2}, Reverse{1, 2}, load(0), Record{0, 1}, Reverse{0, 1},
                    drop_state(0, kDisk), drop_state(1, kDisk), drop_state(1, Place::fast)}),
               8 + 1 + 1 + 2 + 1 + 2, 7);
}

TEST(ReplayTime, CopiesInsideFastMemoryPassTheWaitOn) {
  expect_times(run(chain_of(2), with_disk(),
                   {Advance{0, 1}, copy_state(1, Place::work, kDisk),  // write [1,3)
                    load(0),                                           // stalls 2
                    copy_state(1, kDisk, Place::work),                 // read [3,5)
                    save(1),                                           // goes on; arrives at 5
                    load(0),                                           // stalls 2
                    load(1), Record{1, 2}, Reverse{1, 2}, load(0), Record{0, 1}, Reverse{0, 1},
                    drop_state(1, Place::fast), drop_state(1, kDisk)}),
               5 + 1 + 2 + 1 + 2, 4);
  // The wait arrives in work again by way of fast.
  expect_times(run(chain_of(2), with_disk(),
                   {Advance{0, 1}, copy_state(1, Place::work, kDisk),  // write [1,3)
                    copy_state(1, kDisk, Place::fast),                 // read [3,5)
                    load(0),                                           // stalls 2
                    load(1),                                           // goes on; arrives at 5
                    Record{1, 2},                                      // stalls 2
                    Reverse{1, 2}, load(0), Record{0, 1}, Reverse{0, 1}, drop_state(1, Place::fast),
                    drop_state(1, kDisk)}),
               5 + 1 + 2 + 1 + 2, 4);
}

TEST(ReplayTime, CopiesInsideFastMemoryTakeTheirTime) {
  Machine machine = with_disk();
  machine.platform.copy_rate = 4;  // a state takes 0.5
  const std::vector<Action> actions{
      Advance{0, 1}, save(1),      Record{1, 2},  Reverse{1, 2},
      load(0),       Record{0, 1}, Reverse{0, 1}, drop_state(1, Place::fast)};
  expect_times(run(chain_of(2), machine, actions), 3 * 1 + 2 * 2 + 2 * 0.5, 0);
  machine.sync = true;
  expect_times(run(chain_of(2), machine, actions), 3 * 1 + 2 * 2 + 2 * 0.5, 0);
  // They wait for their source.
  machine.sync = false;
  expect_times(run(chain_of(2), machine,
                   {Advance{0, 1}, copy_state(1, Place::work, kDisk),  // write [1,3)
                    copy_state(1, kDisk, Place::fast),                 // read [3,5)
                    load(0),                                           // stalls 2, ends at 3.5
                    load(1),                                           // stalls 1.5, ends at 5.5
                    Record{1, 2}, Reverse{1, 2}, load(0), Record{0, 1}, Reverse{0, 1},
                    drop_state(1, Place::fast), drop_state(1, kDisk)}),
               5.5 + 1 + 2 + 0.5 + 1 + 2, 3.5);
}

TEST(ReplayTime, LatencyAndRateOfEachDirection) {
  Machine machine = with_disk();
  machine.platform.tiers[0] = Tier{
      .name = "disk", .write_rate = 2, .read_rate = 4, .write_latency = 0.5, .read_latency = 0.25};
  const std::vector<Action> actions{Advance{0, 1},
                                    copy_state(1, Place::work, kDisk),  // [1,2.5)
                                    load(0),                            // stalls 1.5
                                    copy_state(1, kDisk, Place::work),  // [2.5,3.25)
                                    Record{1, 2},                       // stalls 0.75
                                    Reverse{1, 2},
                                    load(0),
                                    Record{0, 1},
                                    Reverse{0, 1},
                                    drop_state(1, kDisk)};
  expect_times(run(chain_of(2), machine, actions), 1 + 1.5 + 0.75 + 1 + 2 + 1 + 2, 2.25);
  machine.sync = true;
  expect_times(run(chain_of(2), machine, actions), 1 + 1.5 + 0.75 + 1 + 2 + 1 + 2, 0);
}

TEST(ReplayTime, ReverseWaitsForTheTapesItReverses) {
  const Prediction p = run(chain_of(2), with_disk(),
                           {Record{0, 1}, copy_tape(0, Place::fast, kDisk),  // write [1,5)
                            Record{1, 2}, Reverse{1, 2},                     // ends at 4
                            drop_tape(0, Place::fast),                       // stalls 1
                            copy_tape(0, kDisk, Place::fast),                // read [5,9)
                            Reverse{0, 1},                                   // stalls 4
                            drop_tape(0, kDisk)});
  expect_times(p, 9 + 2, 5);
  EXPECT_EQ(p.moved, (std::vector<Prediction::Traffic>{{.written = 4, .read = 4}}));
}

TEST(ReplayTime, ReverseWaitsForTransfersOutOfTheTapesItFrees) {
  expect_times(run(chain_of(2), with_disk(),
                   {Record{0, 1}, copy_tape(0, Place::fast, kDisk),  // [1,5)
                    Record{1, 2}, Reverse{0, 2},                     // stalls 3
                    drop_tape(0, kDisk)}),
               5 + 4, 3);
  // A long range is searched the other way round.
  const std::int64_t n = 1'000'000;
  expect_times(run(chain_of(n), with_disk(),
                   {Record{0, n}, copy_tape(n / 2, Place::fast, kDisk),  // [n,n+4)
                    Reverse{0, n}, drop_tape(n / 2, kDisk)}),
               static_cast<double>(n + 4 + 2 * n), 4);
}

TEST(ReplayTime, RestartFromATapeWaitsForTheTape) {
  expect_times(run(chain_of(2), with_disk(),
                   {Record{0, 1}, copy_tape(0, Place::fast, kDisk),  // write [1,5)
                    drop_tape(0, Place::fast),                       // stalls 4
                    copy_tape(0, kDisk, Place::fast),                // read [5,9)
                    load(0), load(1), Record{1, 2},                  // stalls 4
                    Reverse{0, 2}, drop_tape(0, kDisk)}),
               9 + 1 + 4, 8);
}

TEST(ReplayTime, StateCopiedOutOfATapeKeepsTheTapeBusy) {
  const Action out = copy_state(1, Place::fast, kDisk);
  expect_times(run(chain_of(2), with_disk(),
                   {Record{0, 1}, out,            // [1,3)
                    Record{1, 2}, Reverse{0, 2},  // stalls 1
                    drop_state(1, kDisk)}),
               3 + 4, 1);
  expect_times(run(chain_of(2), with_disk(),
                   {Record{0, 1}, out,          // [1,3)
                    drop_tape(0, Place::fast),  // stalls 2
                    Record{1, 2}, Reverse{1, 2}, load(0), Record{0, 1}, Reverse{0, 1},
                    drop_state(1, kDisk)}),
               3 + 1 + 2 + 1 + 2, 2);
}

TEST(ReplayTime, CallersStateIsNeverInTheWay) {
  const std::vector<Action> rest{Record{0, 1}, Reverse{0, 1}, drop_state(0, kDisk)};
  std::vector<Action> actions{copy_state(0, Place::fast, kDisk)};  // [0,2)
  actions.insert(actions.end(), rest.begin(), rest.end());
  expect_times(run(chain_of(1), with_disk(), actions), 3, 0);
  actions[0] = copy_state(0, Place::work, kDisk);
  expect_times(run(chain_of(1), with_disk(), actions), 5, 2);
}

TEST(ReplayTime, EveryCallTakesItsSeconds) {
  const Chain chain = Chain::uniform(4, {}, 0.5);
  expect_times(
      run(chain, {},
          {Advance{0, 3}, Record{3, 4}, Reverse{3, 4}, load(0), Record{0, 3}, Reverse{0, 3}}),
      7 + 8 + 5 * 0.5, 0);
}

TEST(ReplayTime, StepsOfDifferentCosts) {
  const Chain chain = Chain::of({{.forward = 1, .record = 2, .backward = 4, .state = 1},
                                 {.forward = 8, .record = 16, .backward = 32, .state = 3},
                                 {.forward = 64, .record = 128, .backward = 256, .state = 5}},
                                0.25);
  const Prediction p =
      run(chain, with_disk(),
          {Advance{0, 2}, save(2), copy_state(2, Place::fast, kDisk),  // 5 seconds, hidden
           Record{2, 3}, Reverse{2, 3}, drop_state(2, Place::fast), drop_state(2, kDisk), load(0),
           Record{0, 2}, Reverse{0, 2}});
  expect_times(p, 9 + 128 + 256 + 18 + 36 + 5 * 0.25, 0);
  EXPECT_EQ(p.moved[0].written, 5);
}

}  // namespace
}  // namespace ebb::test::replay_time_test
