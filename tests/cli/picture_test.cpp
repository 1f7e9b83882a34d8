// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "tests/plan/hand_made.h"

namespace ebb::test::picture_test {
namespace {

using test::copy_state;
using test::copy_tape;
using test::drop_state;
using test::hand_made;
using ::testing::HasSubstr;
using ::testing::Not;

std::string drawn(const Plan& plan, std::int64_t steps) {
  std::ostringstream out;
  draw_picture(plan, steps, out);
  return out.str();
}

TEST(Picture, ShowsStatesSavedAndStepsRunAgain) {
  Plan plan = hand_made(test::revolve_5_2());
  plan.machine.start_charged = true;
  EXPECT_EQ(drawn(plan, 5), R"(The schedule, steps across, time down:
          01234
  start   +>+>B
  2 fast    >B.
  2 fast    B..
  0 fast  >B...
  0 fast  B....
  >  advance: run the step, keep nothing
  +  the same, the state before the step saved in fast
  B  record and reverse
  .  already reversed
)");
}

TEST(Picture, ShowsTapesKeptAndReversedLater) {
  const Plan plan =
      hand_made({Record{0, 2}, test::save(2), Advance{2, 3}, Record{3, 4}, Reverse{3, 4},
                 test::load(2), Record{2, 3}, Reverse{0, 3}, drop_state(2, Place::fast)});
  EXPECT_EQ(drawn(plan, 4), R"(The schedule, steps across, time down:
          0123
  start   oo+B
  2 fast  <<B.
  +  the same, the state before the step saved in fast
  o  record: run the step, keep its tape
  B  record and reverse
  <  reverse from a tape kept before
  .  already reversed
)");
}

TEST(Picture, ShowsTiersAndTransfersThatDoNotTouchTheLiveState) {
  const Place disk = Place::slow(0);
  const Place tape = Place::slow(1);
  const Plan plan =
      hand_made({copy_state(0, Place::work, tape), Advance{0, 1}, copy_state(1, Place::work, disk),
                 Advance{1, 2}, Record{2, 3}, copy_state(1, disk, Place::fast),
                 copy_tape(2, Place::fast, disk), copy_tape(2, disk, Place::fast),
                 copy_state(0, tape, Place::fast), Reverse{2, 3}, test::load(1), Record{1, 2},
                 Reverse{1, 2}, test::load(0), Record{0, 1}, Reverse{0, 1}},
                {Tier{.name = "disk"}, Tier{.name = "tape"}});
  EXPECT_EQ(drawn(plan, 3), R"(The schedule, steps across, time down:
          012
  start   21B  1 disk->fast, tape 2 fast->disk, tape 2 disk->fast and 1 more
  1 fast   B.
  0 fast  B..
  1  the same, the state before the step saved in disk
  2  the same, the state before the step saved in tape
  B  record and reverse
  .  already reversed
)");
}

TEST(Picture, AStateThatPassesThroughFastIsSavedInTheTier) {
  const Plan plan =
      hand_made({test::save(0), copy_state(0, Place::fast, Place::slow(0)), Advance{0, 1},
                 drop_state(0, Place::fast), Record{1, 2}, Reverse{1, 2},
                 copy_state(0, Place::slow(0), Place::work), Record{0, 1}, Reverse{0, 1}},
                {Tier{.name = "disk"}});
  EXPECT_THAT(drawn(plan, 2), HasSubstr("  start   1B\n  0 disk  B.\n"));
}

TEST(Picture, ALoadStartedBeforeAReverseBelongsToTheNextRow) {
  const Plan plan = hand_made({test::save(0), Advance{0, 1}, Record{1, 2}, test::load(0),
                               Reverse{1, 2}, Record{0, 1}, Reverse{0, 1}});
  EXPECT_THAT(drawn(plan, 2), HasSubstr("  start   +B\n  0 fast  B.\n"));
}

TEST(Picture, RulesTensBeyondTenSteps) {
  const Plan plan = hand_made({Record{0, 21}, Reverse{0, 21}});
  EXPECT_THAT(
      drawn(plan, 21),
      HasSubstr("         0         1         2\n         012345678901234567890\n  start  BBBBB"));
  EXPECT_THAT(drawn(plan, 21), Not(HasSubstr("advance")));
}

TEST(Picture, IsForShortPlansOnly) {
  Plan plan = hand_made({});
  EXPECT_FALSE(has_picture(plan, 0));
  EXPECT_TRUE(has_picture(plan, 1));
  EXPECT_TRUE(has_picture(plan, 100));
  EXPECT_FALSE(has_picture(plan, 101));
  plan.prediction.actions = 401;
  EXPECT_FALSE(has_picture(plan, 1));
}

TEST(Picture, StopsAfterSixtyRows) {
  std::vector<Action> actions = {test::save(0)};
  for (std::int64_t last = 70; last > 0; --last) {
    if (last < 70) actions.push_back(test::load(0));
    if (last > 1) actions.push_back(Advance{0, last - 1});
    actions.push_back(Record{last - 1, last});
    actions.push_back(Reverse{last - 1, last});
  }
  EXPECT_THAT(drawn(hand_made(actions), 70), HasSubstr("\n  ... and 10 more rows\n"));
}

}  // namespace
}  // namespace ebb::test::picture_test
