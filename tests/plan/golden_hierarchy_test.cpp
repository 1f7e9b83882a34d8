// SPDX-License-Identifier: Apache-2.0
// Golden numbers of papers.md 5.2 (H-Revolve), 5.3 (Disk-Revolve) and 5.4 (periods); peers.md 7.2.
// Published values leave out the N recording forwards, ours are whole seconds.
#include "ebb/plan/hierarchy.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "tests/plan/ask.h"

namespace ebb::test::golden_hierarchy_test {
namespace {

struct Costs {
  double uf, ub, transfer;
  StepCost step() const { return {.forward = uf, .record = uf, .backward = ub}; }
};

double published(const Plan& plan, std::int64_t n, const Costs& costs) {
  return plan.prediction.seconds - static_cast<double>(n) * costs.uf;
}

Plan plan_on_disk(const std::string& strategy, std::int64_t n, std::int64_t ram, Bytes disk,
                  const Costs& costs) {
  PlanOptions o = in_slots(strategy, ram);
  o.sync = true;
  return plan_for(n, o, costs.step(),
                  with_tiers({slow_tier(costs.transfer, costs.transfer, disk)}));
}

constexpr double kNone = -1;

TEST(GoldenHierarchy, HRevolve) {
  const Costs costs[] = {{1, 1, 2}, {1, 2, 2}, {1, 2, 5}, {1, 3, 5}, {1, 3, 20}, {2, 1, 2}};
  struct Row {
    std::int64_t n, ram, disk;
    double seconds[6];
  };
  const Row rows[] = {{10, 1, 2, {36, kNone, kNone, kNone, kNone, kNone}},
                      {10, 2, 2, {30, kNone, kNone, kNone, kNone, kNone}},
                      {25, 2, 3, {90, 115, 130, 155, 169, 143}},
                      {50, 3, 5, {180, 230, 250, 300, 330, 290}},
                      {100, 5, 5, {357, 457, 480, 580, 616, 594}},
                      {100, 3, 10, {375, 475, 525, 625, 740, 610}},
                      {200, 5, 20, {712, 912, 993, 1193, 1340, 1144}}};
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < 6; ++i) {
      if (row.seconds[i] == kNone) continue;
      SCOPED_TRACE(std::to_string(row.n) + " steps, costs " + std::to_string(i));
      const Plan plan = plan_on_disk("h_revolve", row.n, row.ram, row.disk, costs[i]);
      EXPECT_EQ(published(plan, row.n, costs[i]), row.seconds[i]);
      EXPECT_TRUE(plan.optimal);
      EXPECT_LE(plan.prediction.peak[0], row.ram);
      EXPECT_LE(plan.prediction.peak[1], row.disk);
      // With one slow tier disk_revolve is the same programme.
      EXPECT_EQ(plan_on_disk("disk_revolve", row.n, row.ram, row.disk, costs[i]).prediction.seconds,
                plan.prediction.seconds);
    }
  }
}

// checkpoint_schedules exchanges uf and ub and pays 120 and 201 for these.
TEST(GoldenHierarchy, ForwardAndBackwardAreNotExchanged) {
  EXPECT_EQ(published(plan_on_disk("h_revolve", 25, 2, 3, {1, 2, 2}), 25, {1, 2, 2}), 115);
  EXPECT_EQ(published(plan_on_disk("h_revolve", 25, 2, 3, {1, 3, 20}), 25, {1, 3, 20}), 169);
  // What backwards cost changes no decision.
  const std::vector<Action> actions = actions_of(plan_on_disk("h_revolve", 50, 3, 5, {1, 1, 5}));
  EXPECT_EQ(actions_of(plan_on_disk("h_revolve", 50, 3, 5, {1, 9, 5})), actions);
}

struct DiskRow {
  std::int64_t ram, n;
  double several[4];  // disk states read any number of times, which is what ours does
  double once[4];     // each read once
  double ram_only;
};
constexpr Costs kDiskCosts[] = {{1, 1, 2}, {1, 2, 2}, {1, 1, 10}, {1, 3, 20}};
constexpr DiskRow kDisk[] = {{2, 25, {90, 115, 115, 169}, {90, 115, 115, 169}, 119},
                             {2, 50, {190, 240, 265, 399}, {190, 240, 265, 400}, 335},
                             {2, 100, {390, 490, 565, 854}, {390, 490, 565, 864}, 945},
                             {2, 200, {790, 990, 1165, 1769}, {790, 990, 1165, 1788}, 2670},
                             {3, 25, {82, 107, 90, 140}, {82, 107, 90, 140}, 90},
                             {3, 50, {175, 225, 220, 330}, {175, 225, 220, 330}, 230},
                             {3, 100, {363, 463, 485, 740}, {363, 463, 485, 740}, 590},
                             {3, 200, {738, 938, 1010, 1554}, {738, 938, 1010, 1554}, 1505},
                             {5, 50, {158, 208, 172, 272}, {158, 208, 172, 272}, 172},
                             {5, 100, {333, 433, 400, 616}, {333, 433, 400, 616}, 416},
                             {5, 200, {683, 883, 863, 1340}, {683, 883, 863, 1340}, 990}};

TEST(GoldenHierarchy, DiskRevolve) {
  for (const DiskRow& row : kDisk) {
    for (std::size_t i = 0; i < 4; ++i) {
      SCOPED_TRACE(std::to_string(row.n) + " steps, " + std::to_string(row.ram) + " slots, costs " +
                   std::to_string(i));
      const Plan plan = plan_on_disk("disk_revolve", row.n, row.ram, kUnlimited, kDiskCosts[i]);
      EXPECT_EQ(published(plan, row.n, kDiskCosts[i]), row.several[i]);
      EXPECT_LE(published(plan, row.n, kDiskCosts[i]), row.once[i]);
      EXPECT_TRUE(plan.optimal);
      // Never dearer than without the disk.
      const Costs& c = kDiskCosts[i];
      const Plan alone = plan_for(row.n, in_slots("revolve", row.ram), c.step());
      EXPECT_LE(plan.prediction.seconds, alone.prediction.seconds);
      if (c.ub == 1) {
        EXPECT_EQ(published(alone, row.n, c), row.ram_only);
      }
    }
  }
}

TEST(GoldenHierarchy, Periods) {
  constexpr double cost[] = {4, 10, 20, 40, 100};
  struct Row {
    std::int64_t slots, period[5];
  };
  const Row rows[] = {{1, {3, 5, 6, 9, 14}},
                      {2, {6, 10, 15, 21, 36}},
                      {3, {4, 10, 20, 35, 56}},
                      {5, {6, 21, 21, 56, 126}},
                      {10, {11, 11, 66, 66, 286}}};
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < 5; ++i) {
      SCOPED_TRACE(std::to_string(row.slots) + " slots, cost " + std::to_string(cost[i]));
      EXPECT_EQ(disk_period(row.slots, cost[i], kUnlimited), row.period[i]);
      // Of write and read only the sum counts, of both only the ratio to a forward.
      PlanOptions o = in_slots("periodic_disk", row.slots);
      o.sync = true;
      const StepCost step{.forward = 2, .record = 2};
      const Platform disk = with_tiers({slow_tier(0.5 * cost[i], 1.5 * cost[i])});
      const Plan plan = plan_for(1000, o, step, disk);
      EXPECT_EQ(parameter(plan, "every in disk"), row.period[i]);
      // The optimum of the same machine is no dearer; the period is near it.
      o.strategy = "disk_revolve";
      const Plan best = plan_for(1000, o, step, disk);
      EXPECT_LE(best.prediction.seconds, plan.prediction.seconds);
      EXPECT_LE(plan.prediction.seconds, 1.05 * best.prediction.seconds);
    }
  }
}

}  // namespace
}  // namespace ebb::test::golden_hierarchy_test
