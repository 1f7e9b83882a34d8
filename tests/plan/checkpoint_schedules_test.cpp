// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/checkpoint_schedules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "ebb/core/error.h"
#include "tests/plan/hand_made.h"

namespace ebb::test::checkpoint_schedules_test {
namespace {

using test::copy_state;
using test::copy_tape;
using test::drop_state;
using test::hand_made;
using test::load;
using test::save;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string storage(ScheduleAction::Storage storage) {
  switch (storage) {
    case ScheduleAction::Storage::ram:
      return "RAM";
    case ScheduleAction::Storage::disk:
      return "DISK";
    case ScheduleAction::Storage::work:
      return "WORK";
    case ScheduleAction::Storage::none:
      return "NONE";
  }
  return "?";
}

std::string in_short(const ScheduleAction& a) {
  using Kind = ScheduleAction::Kind;
  const std::string n0 = std::to_string(a.n0), n1 = std::to_string(a.n1);
  switch (a.kind) {
    case Kind::forward:
      return "F(" + n0 + "," + n1 + "," + (a.write_ics ? "ics," : "-,") +
             (a.write_adj_deps ? "deps," : "-,") + storage(a.to) + ")";
    case Kind::reverse:
      return "R(" + n1 + "," + n0 + ")";
    case Kind::copy:
      return "C(" + n0 + "," + storage(a.from) + "," + storage(a.to) + ")";
    case Kind::move:
      return "M(" + n0 + "," + storage(a.from) + "," + storage(a.to) + ")";
    case Kind::end_forward:
      return "EndForward";
    case Kind::end_reverse:
      return "EndReverse";
  }
  return "?";
}

// Each action as the package itself would print it, shorter: F(n0,n1,ics,deps,storage) R(n1,n0)
// C(n,from,to) M(n,from,to).
std::vector<std::string> said(const Plan& plan, std::int64_t steps,
                              std::int64_t tapes_in_work = kUnlimited) {
  std::vector<std::string> all;
  ScheduleCursor cursor(plan, steps, tapes_in_work);
  for (ScheduleAction action; cursor.next(action);) all.push_back(in_short(action));
  return all;
}

std::string refusal(const Plan& plan, std::int64_t steps) {
  std::ostringstream out;
  try {
    write_checkpoint_schedules(plan, steps, out);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_EQ(out.str(), "");
    return error.what();
  }
  return "no error";
}

TEST(CheckpointSchedules, SavesWithTheForwardAndMovesOnTheLastLoad) {
  Plan plan =
      hand_made({save(0), Advance{0, 2}, save(2), Advance{2, 3}, Record{3, 4}, Reverse{3, 4},
                 load(2), Record{2, 3}, Reverse{2, 3}, drop_state(2, Place::fast), load(0),
                 Advance{0, 1}, Record{1, 2}, Reverse{1, 2}, load(0), drop_state(0, Place::fast),
                 Record{0, 1}, Reverse{0, 1}});
  plan.machine.start_charged = true;
  EXPECT_THAT(said(plan, 4),
              ElementsAre("F(0,2,ics,-,RAM)", "F(2,3,ics,-,RAM)", "F(3,4,-,deps,WORK)",
                          "EndForward", "R(4,3)", "M(2,RAM,WORK)", "F(2,3,-,deps,WORK)", "R(3,2)",
                          "C(0,RAM,WORK)", "F(0,1,-,-,WORK)", "F(1,2,-,deps,WORK)", "R(2,1)",
                          "M(0,RAM,WORK)", "F(0,1,-,deps,WORK)", "R(1,0)", "EndReverse"));
}

TEST(CheckpointSchedules, WritesTheCallersInitialStateOnlyWhenItIsLoaded) {
  EXPECT_THAT(said(hand_made({Advance{0, 1}, Record{1, 2}, Reverse{1, 2}, load(0), Record{0, 1},
                              Reverse{0, 1}}),
                   2),
              ElementsAre("F(0,1,ics,-,RAM)", "F(1,2,-,deps,WORK)", "EndForward", "R(2,1)",
                          "M(0,RAM,WORK)", "F(0,1,-,deps,WORK)", "R(1,0)", "EndReverse"));
  EXPECT_THAT(said(hand_made({Record{0, 9}, Reverse{0, 9}}), 9),
              ElementsAre("F(0,9,-,deps,WORK)", "EndForward", "R(9,0)", "EndReverse"));
}

TEST(CheckpointSchedules, KeepsTapesInRamUntilTheyAreReversed) {
  const Plan plan = hand_made({Record{0, 2}, save(2), Advance{2, 3}, Record{3, 4}, Reverse{3, 4},
                               load(2), Record{2, 3}, Reverse{0, 3}, drop_state(2, Place::fast)});
  EXPECT_THAT(said(plan, 4),
              ElementsAre("F(0,1,-,deps,RAM)", "F(1,2,-,deps,RAM)", "F(2,3,ics,-,RAM)",
                          "F(3,4,-,deps,WORK)", "EndForward", "R(4,3)", "M(2,RAM,WORK)",
                          "F(2,3,-,deps,WORK)", "R(3,2)", "M(1,RAM,WORK)", "R(2,1)",
                          "M(0,RAM,WORK)", "R(1,0)", "EndReverse"));
}

TEST(CheckpointSchedules, ARecordReversedInPartsLeavesItsFirstTapesInRam) {
  EXPECT_THAT(said(hand_made({Record{0, 3}, Reverse{1, 3}, Reverse{0, 1}}), 3),
              ElementsAre("F(0,1,-,deps,RAM)", "F(1,3,-,deps,WORK)", "EndForward", "R(3,1)",
                          "M(0,RAM,WORK)", "R(1,0)", "EndReverse"));
}

TEST(CheckpointSchedules, WorkTakesNoMoreTapesThanItMay) {
  EXPECT_THAT(
      said(hand_made({Record{0, 3}, Reverse{0, 3}}), 3, 1),
      ElementsAre("F(0,1,-,deps,RAM)", "F(1,2,-,deps,RAM)", "F(2,3,-,deps,WORK)", "EndForward",
                  "R(3,2)", "M(1,RAM,WORK)", "R(2,1)", "M(0,RAM,WORK)", "R(1,0)", "EndReverse"));
}

TEST(CheckpointSchedules, JoinsAdvancesSoThatACheckpointReachesFarEnough) {
  const Plan plan =
      hand_made({Advance{0, 1}, Advance{1, 2}, Record{2, 3}, Reverse{2, 3}, load(0), Advance{0, 1},
                 Record{1, 2}, Reverse{1, 2}, load(0), Record{0, 1}, Reverse{0, 1}});
  EXPECT_THAT(said(plan, 3),
              ElementsAre("F(0,2,ics,-,RAM)", "F(2,3,-,deps,WORK)", "EndForward", "R(3,2)",
                          "C(0,RAM,WORK)", "F(0,1,-,-,WORK)", "F(1,2,-,deps,WORK)", "R(2,1)",
                          "M(0,RAM,WORK)", "F(0,1,-,deps,WORK)", "R(1,0)", "EndReverse"));
}

TEST(CheckpointSchedules, SaysTransfersStartedAheadWhereWorkIsFree) {
  const Place disk = Place::slow(0);
  Plan plan = hand_made({copy_state(0, Place::work, disk),
                         Advance{0, 2},
                         save(2),
                         copy_state(2, Place::fast, disk),
                         drop_state(2, Place::fast),
                         Advance{2, 3},
                         Record{3, 4},
                         copy_state(2, disk, Place::fast),
                         copy_state(2, Place::fast, Place::work),
                         Reverse{3, 4},
                         Record{2, 3},
                         Reverse{2, 3},
                         drop_state(2, Place::fast),
                         drop_state(2, disk),
                         copy_state(0, disk, Place::work),
                         save(0),
                         Advance{0, 1},
                         Record{1, 2},
                         Reverse{1, 2},
                         load(0),
                         Record{0, 1},
                         Reverse{0, 1},
                         drop_state(0, disk),
                         drop_state(0, Place::fast)},
                        {Tier{.name = "disk"}});
  plan.machine.start_charged = true;
  EXPECT_THAT(
      said(plan, 4),
      ElementsAre("F(0,2,ics,-,DISK)", "F(2,3,ics,-,DISK)", "F(3,4,-,deps,WORK)", "EndForward",
                  "R(4,3)", "M(2,DISK,RAM)", "M(2,RAM,WORK)", "F(2,3,-,deps,WORK)", "R(3,2)",
                  "M(0,DISK,WORK)", "F(0,1,ics,-,RAM)", "F(1,2,-,deps,WORK)", "R(2,1)",
                  "M(0,RAM,WORK)", "F(0,1,-,deps,WORK)", "R(1,0)", "EndReverse"));
}

TEST(CheckpointSchedules, CopiesAStateThatIsUsedInTwoPlaces) {
  const Place disk = Place::slow(0);
  Plan plan = hand_made(
      {save(0), copy_state(0, Place::work, disk), Advance{0, 2}, Record{2, 3}, Reverse{2, 3},
       load(0), drop_state(0, Place::fast), Advance{0, 1}, Record{1, 2}, Reverse{1, 2},
       copy_state(0, disk, Place::work), Record{0, 1}, Reverse{0, 1}, drop_state(0, disk)},
      {Tier{.name = "disk"}});
  plan.machine.start_charged = true;
  EXPECT_THAT(said(plan, 3), ElementsAre("F(0,2,ics,-,RAM)", "C(0,RAM,DISK)", "F(2,3,-,deps,WORK)",
                                         "EndForward", "R(3,2)", "M(0,RAM,WORK)", "F(0,1,-,-,WORK)",
                                         "F(1,2,-,deps,WORK)", "R(2,1)", "M(0,DISK,WORK)",
                                         "F(0,1,-,deps,WORK)", "R(1,0)", "EndReverse"));
}

TEST(CheckpointSchedules, WritesAStateThatPassesThroughFastToTheDiskAlone) {
  const Place disk = Place::slow(0);
  Plan plan = hand_made(
      {save(0), copy_state(0, Place::fast, disk), Advance{0, 1}, drop_state(0, Place::fast),
       Record{1, 2}, Reverse{1, 2}, copy_state(0, disk, Place::work), drop_state(0, disk),
       Record{0, 1}, Reverse{0, 1}},
      {Tier{.name = "disk"}});
  plan.machine.start_charged = true;
  EXPECT_THAT(said(plan, 2),
              ElementsAre("F(0,1,ics,-,DISK)", "F(1,2,-,deps,WORK)", "EndForward", "R(2,1)",
                          "M(0,DISK,WORK)", "F(0,1,-,deps,WORK)", "R(1,0)", "EndReverse"));
}

TEST(CheckpointSchedules, DoesNotWriteWhatIsNeverLoaded) {
  const Place disk = Place::slow(0);
  Plan plan =
      hand_made({save(0), copy_state(0, Place::work, disk), Advance{0, 1}, save(1), Record{1, 2},
                 Reverse{1, 2}, drop_state(1, Place::fast), drop_state(0, disk), load(0),
                 drop_state(0, Place::fast), Record{0, 1}, Reverse{0, 1}},
                {Tier{.name = "disk"}});
  plan.machine.start_charged = true;
  EXPECT_THAT(said(plan, 2),
              ElementsAre("F(0,1,ics,-,RAM)", "F(1,2,-,deps,WORK)", "EndForward", "R(2,1)",
                          "M(0,RAM,WORK)", "F(0,1,-,deps,WORK)", "R(1,0)", "EndReverse"));
}

TEST(CheckpointSchedules, AreWrittenWithTheKeysOfThePackage) {
  Plan plan = hand_made({save(0), Advance{0, 1}, Record{1, 2}, Reverse{1, 2}, load(0), Record{0, 1},
                         Reverse{0, 1}, drop_state(0, Place::fast)});
  plan.machine.start_charged = true;
  std::ostringstream out;
  write_checkpoint_schedules(plan, 2, out);
  EXPECT_EQ(
      out.str(),
      R"({"action":"Forward","n0":0,"n1":1,"write_ics":true,"write_adj_deps":false,"storage":"RAM"}
{"action":"Forward","n0":1,"n1":2,"write_ics":false,"write_adj_deps":true,"storage":"WORK"}
{"action":"EndForward"}
{"action":"Reverse","n1":2,"n0":1,"clear_adj_deps":true}
{"action":"Move","n":0,"from_storage":"RAM","to_storage":"WORK"}
{"action":"Forward","n0":0,"n1":1,"write_ics":false,"write_adj_deps":true,"storage":"WORK"}
{"action":"Reverse","n1":1,"n0":0,"clear_adj_deps":true}
{"action":"EndReverse"}
)");
}

TEST(CheckpointSchedules, ACursorOutlivesItsPlan) {
  auto plan = std::make_unique<Plan>(hand_made({Record{0, 1}, Reverse{0, 1}}));
  ScheduleCursor cursor(*plan, 1);
  plan.reset();
  ScheduleAction action;
  int count = 0;
  while (cursor.next(action)) ++count;
  EXPECT_EQ(count, 4);
  EXPECT_FALSE(cursor.next(action));
}

TEST(CheckpointSchedules, OfNoStepsOnlyEnds) {
  EXPECT_THAT(said(hand_made({}), 0), ElementsAre("EndForward", "EndReverse"));
}

TEST(CheckpointSchedules, RefusesWhatCannotBeSaidAndNamesTheAction) {
  const Place disk = Place::slow(0);
  const std::vector<Tier> tiers = {Tier{.name = "disk"}, Tier{.name = "tape"}};
  EXPECT_THAT(
      refusal(
          hand_made({Record{0, 1}, Record{1, 2}, Reverse{1, 2}, copy_tape(0, Place::fast, disk)},
                    tiers),
          2),
      HasSubstr(
          R"({"action":"copy","item":"tape","step":0,"from":"fast","to":"disk"} it transfers a tape)"));
  EXPECT_THAT(refusal(hand_made({Record{0, 1}, Advance{1, 2}, Record{2, 3}, Reverse{2, 3}, load(1),
                                 Record{1, 2}}),
                      3),
              HasSubstr("it restarts from a tape"));
  EXPECT_THAT(
      refusal(hand_made({Advance{0, 1}, copy_state(1, Place::work, disk), Advance{1, 2},
                         copy_state(2, Place::work, Place::slow(1)), Advance{2, 3}, Record{3, 4},
                         Reverse{3, 4}, copy_state(2, Place::slow(1), Place::work), Record{2, 3},
                         Reverse{2, 3}, copy_state(1, disk, Place::work)},
                        tiers),
              4),
      HasSubstr("a second slow tier"));
  EXPECT_THAT(
      refusal(hand_made({Advance{0, 1}, save(1), Advance{1, 3}, Record{3, 4}, Reverse{3, 4},
                         load(1), drop_state(1, Place::fast), Advance{1, 2}, Record{2, 3},
                         Reverse{2, 3}, load(0), Advance{0, 1}, Record{1, 2}, Reverse{1, 2}}),
              4),
      HasSubstr("beyond the state saved after it"));
  EXPECT_THAT(refusal(hand_made({Advance{0, 1}, save(1), Record{1, 2}, Advance{2, 3}, Record{3, 4},
                                 Reverse{3, 4}, load(1), Advance{1, 2}}),
                      4),
              HasSubstr("the state and the tape of one step"));
  EXPECT_THAT(refusal(hand_made({Record{0, 1}, test::drop_tape(0, Place::fast), Record{1, 2}}), 2),
              HasSubstr("drops a tape"));
}

}  // namespace
}  // namespace ebb::test::checkpoint_schedules_test
