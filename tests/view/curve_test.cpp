// SPDX-License-Identifier: Apache-2.0
#include "ebb/view/curve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <string>
#include <vector>

#include "ebb/plan/strategies.h"

namespace ebb::test::curve_test {
namespace {

using ::testing::Contains;
using ::testing::IsSupersetOf;
using ::testing::Not;

PlanQuestion long_question(std::int64_t steps) {
  StepCost step;
  step.state = 1_MiB;
  step.tape = 4_MiB;
  Platform platform{"", 2_GiB, {Tier{.name = "ssd", .write_rate = 2.5e9, .read_rate = 3.5e9}}};
  return {Chain::uniform(steps, step), platform, {.strategy = "msm"}};
}

Json curve_of(const PlanQuestion& asked, double limit) {
  return budget_curve(asked, make_plan(asked.chain, asked.platform, asked.options), limit);
}

std::vector<std::string> names_in(const Json& curve) {
  std::vector<std::string> names;
  for (const Json& line : curve["lines"]) names.push_back(line["strategy"]);
  return names;
}

TEST(BudgetCurves, KeepToTheirTimeHoweverLongTheChain) {
  PlanQuestion asked{Chain::uniform(1'000'000'000, {}), {}, {.strategy = "revolve"}};
  asked.options.budget = 100;
  const std::clock_t before = std::clock();
  const Json curve = curve_of(asked, 0.5);
  // Replaying one plan of the others takes seconds.
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 2);
  EXPECT_THAT(names_in(curve), IsSupersetOf({"revolve", "hsm", "constant"}));
  EXPECT_GT(curve["lines"][0]["points"].size(), 10U);
  EXPECT_THAT(curve["left_out"], Contains("auto"));
  EXPECT_THAT(curve["left_out"], Contains("h_revolve"));
  EXPECT_THAT(curve["left_out"], Not(Contains("pofo")));  // it needs a tier: no time would help
}

TEST(BudgetCurves, OfLongChainsHaveManyStrategiesAroundTheBudget) {
  const Json curve = curve_of(long_question(1'000'000), 3);
  EXPECT_THAT(names_in(curve), IsSupersetOf({"msm", "mixed", "chain", "sqrt", "single", "double"}));
  for (const Json& line : curve["lines"]) {
    for (const Json& point : line["points"]) {
      EXPECT_LE(point[0].get<Bytes>(), 64 * 2_GiB) << line["strategy"];
      EXPECT_GE(point[0].get<Bytes>(), 2_GiB / 64) << line["strategy"];
    }
  }
  EXPECT_THAT(curve["left_out"], Not(Contains("store_all")));
  EXPECT_THAT(curve["beyond"], Contains("store_all"));
}

TEST(BudgetCurves, OfShortChainsAreWhole) {
  const Json curve = curve_of(long_question(600), 60);
  EXPECT_TRUE(curve["left_out"].empty());
  EXPECT_THAT(names_in(curve), IsSupersetOf({"store_all", "auto", "pofo", "online"}));
}

}  // namespace
}  // namespace ebb::test::curve_test
