// SPDX-License-Identifier: Apache-2.0
#include "ebb/view/explorer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "ebb/core/json.h"
#include "ebb/plan/strategies.h"
#include "ebb/view/plan_data.h"

namespace ebb::test::explorer_test {
namespace {

using ::testing::HasSubstr;

constexpr const char* kQuestion =
    R"({"chain":{"repeat":40,"step":{"forward":0.001,"backward":0.002,"state":1024,"tape":"4KiB"}},)"
    R"("platform":{"tiers":[{"name":"disk","write":"10MB/s","read":2e7}]},)"
    R"("options":{"budget":"24KiB"}})";

std::string error_of(const std::string& answer) {
  const Json json = Json::parse(answer);
  return json.value("error", "none");
}

TEST(Explorer, AnswersAsAPlansPageDoes) {
  Explorer explorer;
  const Json answer = Json::parse(explorer.plan(kQuestion));
  const PlanQuestion question = question_from_json(kQuestion);
  const Plan plan = make_plan(question.chain, question.platform, question.options);
  const auto least = least_budget(question.chain, question.platform, question.options);
  EXPECT_EQ(answer,
            plan_data({.question = question, .plan = plan, .least = least, .curve_seconds = 0}));
  EXPECT_EQ(answer["chosen"]["budget"], 24 * 1024);
  EXPECT_FALSE(answer.contains("curve"));
}

TEST(Explorer, SaysTheQuestionInNumbersAndNamesTheStrategies) {
  Explorer explorer;
  const Json own = Json::parse(explorer.plan(kQuestion))["explorer"];
  EXPECT_EQ(own["question"]["chain"]["step"]["tape"], 4096);
  EXPECT_EQ(own["question"]["platform"]["tiers"][0]["write"], 1e7);
  EXPECT_EQ(own["strategies"].size(), strategies().size());
}

TEST(Explorer, TheCurveBelongsToTheLastPlan) {
  Explorer explorer;
  EXPECT_THAT(error_of(explorer.curve(0.1)), HasSubstr("no plan yet"));
  explorer.plan(kQuestion);
  const Json curve = Json::parse(explorer.curve(0.1))["curve"];
  EXPECT_EQ(curve["lines"][0]["strategy"], "auto");
  explorer.plan("{}");
  EXPECT_THAT(error_of(explorer.curve(0.1)), HasSubstr("no plan yet"));
}

TEST(Explorer, WhatHasNoAnswerHasAnError) {
  Explorer explorer;
  EXPECT_THAT(error_of(explorer.plan("?")), HasSubstr("question"));
  std::string small = kQuestion;
  small.replace(small.find("24KiB"), 5, "2KiB");
  EXPECT_THAT(error_of(explorer.plan(small)), HasSubstr("it needs at least"));
}

// Each step of a chain with its own costs would need sliders of its own.
TEST(Explorer, IsNotOnThePageOfAChainWhoseStepsDiffer) {
  StepCost first, second;
  second.forward = 3;
  const PlanQuestion question{Chain::of({first, second}), {}, {}};
  const Plan plan = make_plan(question.chain, question.platform, question.options);
  EXPECT_FALSE(
      plan_data({.question = question, .plan = plan, .curve_seconds = 0}).contains("explorer"));
}

TEST(Explorer, CanBeLeftOut) {
  const PlanQuestion question = question_from_json(kQuestion);
  const Plan plan = make_plan(question.chain, question.platform, question.options);
  PlanPage page{.question = question, .plan = plan, .curve_seconds = 0};
  EXPECT_TRUE(plan_data(page).contains("explorer"));
  page.explorer = false;
  EXPECT_FALSE(plan_data(page).contains("explorer"));
}

}  // namespace
}  // namespace ebb::test::explorer_test
