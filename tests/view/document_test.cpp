// SPDX-License-Identifier: Apache-2.0
#include "ebb/view/document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "ebb/core/json.h"
#include "ebb/plan/strategies.h"
#include "tests/message_of.h"
#include "tests/temporary_folder.h"

namespace ebb::test::document_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// The bound is drawn in steps between its points, each at the value of the higher budget.
void expect_above_bound(const Json& curve) {
  const Json& bound = curve["bound"];
  for (const Json& line : curve["lines"]) {
    for (const Json& point : line["points"]) {
      const auto next =
          std::ranges::find_if(bound, [&](const Json& b) { return b[0] >= point[0]; });
      ASSERT_NE(next, bound.end());
      EXPECT_GE(point[1].get<double>() * (1 + 1e-9), (*next)[1].get<double>()) << line["strategy"];
    }
  }
}

// What the page's scripts get.
Json data_of(const std::string& page) {
  const std::string open = "<script type=\"application/json\" id=\"data\">";
  const std::size_t from = page.find(open);
  EXPECT_NE(from, std::string::npos);
  const std::size_t begin = from + open.size();
  return Json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

std::string refusal(const std::string& text) {
  return message_of([&text] { document_page(text, "x.json"); });
}

PlanQuestion question() {
  StepCost step;
  step.forward = 1e-3;
  step.record = 1e-3;
  step.backward = 2e-3;
  step.state = 1024;
  step.tape = 4096;
  Platform platform;
  platform.tiers.push_back(
      {.name = "disk", .capacity = 1'000'000, .write_rate = 1e7, .read_rate = 2e7});
  PlanOptions options;
  options.budget = 40'000;
  return {Chain::uniform(50, step), platform, options};
}

std::string json_of(const PlanQuestion& asked) {
  const Plan plan = make_plan(asked.chain, asked.platform, asked.options);
  return to_json(plan, asked.chain.steps(), 0, std::nullopt, &asked);
}

TEST(PlanPages, ShowThePlanThatTheFileAsksFor) {
  const PlanQuestion asked = question();
  const Plan plan = make_plan(asked.chain, asked.platform, asked.options);
  const std::string page = document_page(json_of(asked), "plan.json");
  EXPECT_THAT(page, AllOf(HasSubstr("<!doctype html>"), Not(HasSubstr("http://localhost")),
                          Not(HasSubstr("src=")), Not(HasSubstr("<link"))));
  const Json data = data_of(page);
  EXPECT_EQ(data["chosen"]["seconds"], plan.prediction.seconds);
  EXPECT_EQ(data["chosen"]["bound"], plan.bound.seconds);
  EXPECT_EQ(data["chosen"]["budget"], 40'000);
  EXPECT_EQ(data["film"]["seconds"], plan.prediction.seconds);
  EXPECT_EQ(data["film"]["memory"].size(), 2U);
  EXPECT_FALSE(data.contains("remarks"));
  expect_above_bound(data["curve"]);
  const Json& lines = data["curve"]["lines"];
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines[0]["strategy"], "auto");
  for (const Json& line : lines) {
    for (const Json& point : line["points"])
      EXPECT_GE(point[1].get<double>() * (1 + 1e-9), 50 * 3e-3);
  }
}

TEST(PlanPages, NameTheFileWhoseQuestionIsWrong) {
  Json json = Json::parse(json_of(question()));
  json["question"]["chain"]["repeat"] = -1;
  EXPECT_THAT(refusal(json.dump()), StartsWith("x.json: chain: "));
}

TEST(SweepPages, NameAStrategyOnlyWhereAllPointsAgree) {
  const auto page = [](const std::string& second) {
    return data_of(document_page(
        R"([{"strategy":"revolve","budget":1,"seconds":9,"bound_seconds":5},{"strategy":")" +
            second + R"(","budget":2,"seconds":7,"bound_seconds":5}])",
        "s.json"));
  };
  EXPECT_EQ(page("revolve")["title"], "Time against budget: revolve");
  EXPECT_EQ(page("revolve")["curve"]["lines"][0]["strategy"], "revolve");
  EXPECT_EQ(page("pofo")["title"], "Time against budget");
  EXPECT_EQ(page("pofo")["curve"]["lines"][0]["strategy"], "plans of the sweep");
}

TEST(PlanPages, SayWhereTheFileFoundAnotherTime) {
  Json json = Json::parse(json_of(question()));
  json["seconds"] = 1000;
  const Json data = data_of(document_page(json.dump(), "plan.json"));
  ASSERT_EQ(data["remarks"].size(), 1U);
  EXPECT_THAT(data["remarks"][0].get<std::string>(), HasSubstr("1000 s"));
}

TEST(PlanPages, AreMadeForEveryStrategyAndForSlots) {
  for (const StrategyRow& row : strategies()) {
    SCOPED_TRACE(row.name);
    PlanQuestion asked = question();
    asked.options.strategy = row.name;
    asked.options.budget.reset();
    if (row.keeps_tapes) {
      asked.options.budget = 400'000;
    } else {
      asked.options.slots = 5;
      if (!least_budget(asked.chain, asked.platform, asked.options)) continue;
    }
    const Plan plan = make_plan(asked.chain, asked.platform, asked.options);
    const Json data = data_of(plan_page({.question = asked, .plan = plan, .curve_seconds = 0.05}));
    EXPECT_EQ(data["film"]["seconds"], plan.prediction.seconds);
  }
}

TEST(PlanPages, HaveTheChosenPlanOnItsLine) {
  PlanQuestion asked = question();
  asked.options.strategy = "h_revolve";
  asked.options.budget.reset();
  asked.options.slots = 3;
  const Plan plan = make_plan(asked.chain, asked.platform, asked.options);
  const Json data = data_of(plan_page({.question = asked, .plan = plan}));
  EXPECT_EQ(data["slot"], 1024);
  const Json& own = data["curve"]["lines"][0];
  EXPECT_EQ(own["strategy"], "h_revolve");
  EXPECT_GT(own["points"].size(), 5U);
  const Json point{3 * 1024, plan.prediction.seconds};
  EXPECT_NE(std::ranges::find(own["points"], point), own["points"].end());
  expect_above_bound(data["curve"]);
}

TEST(PlanPages, LeaveOutWhatHappensWhereThereIsTooMuch) {
  const PlanQuestion asked = question();
  const Plan plan = make_plan(asked.chain, asked.platform, asked.options);
  const Json data =
      data_of(plan_page({.question = asked, .plan = plan, .curve_seconds = 0, .most_actions = 1}));
  EXPECT_FALSE(data.contains("film"));
  EXPECT_FALSE(data.contains("curve"));
  EXPECT_EQ(data["remarks"].size(), 1U);
}

TEST(PlanPages, HaveEachStepsMemoryAtItsTime) {
  std::vector<StepCost> steps;
  for (int i = 1; i <= 4; ++i) steps.push_back({.tape = Bytes{100} * i});
  const PlanQuestion asked{Chain::of(steps), {}, {.strategy = "store_all"}};
  const Plan plan = make_plan(asked.chain, asked.platform, asked.options);
  const Json memory = data_of(
      plan_page({.question = asked, .plan = plan, .curve_seconds = 0}))["film"]["memory"][0];
  // 4 seconds forward, then 2 for each tape, the last one first.
  const std::vector<std::int64_t> freed{0, 400, 700, 900};
  for (std::size_t i = 0; i < freed.size(); ++i) {
    const double at = (4.0 + 2.0 * static_cast<double>(i)) / 12 * 1e9;
    Bytes level = -1;
    for (std::size_t k = 0; k < memory["at"].size(); ++k) {
      if (memory["at"][k].get<double>() <= at + 1) level = memory["bytes"][k].get<Bytes>();
    }
    // Tapes, and the adjoint of the step reversed next; the live state is before no step any more.
    EXPECT_EQ(level, 1000 - freed[i] + 1) << i;
  }
}

TEST(PlanPages, OfNothingAndOfNoTime) {
  PlanQuestion asked{Chain::uniform(0, {}), {}, {}};
  EXPECT_EQ(data_of(document_page(json_of(asked), "x"))["film"]["seconds"], 0);
  StepCost free;
  free.forward = free.record = free.backward = 0;
  asked.chain = Chain::uniform(3, free);
  EXPECT_EQ(data_of(document_page(json_of(asked), "x"))["chosen"]["seconds"], 0);
}

TEST(Pages, HoldWhateverNamesSay) {
  const std::string name = "</script><script>alert(1)</script>";
  const std::string page = document_page(
      Json{{"strategy", name}, {"seconds", {{"predicted", 1}, {"measured", 2}}}}.dump(), "x");
  EXPECT_THAT(page, Not(HasSubstr("alert(1)</script>")));
  EXPECT_EQ(data_of(page)["reports"][0]["strategy"], name);
}

TEST(ReportPages, ReadWhatCppAndPythonWrite) {
  const Json cpp = data_of(document_page(
      R"({"strategy":"revolve","steps":5,"exact":true,"seconds":{"predicted":1.5,"measured":2},"forwards":{"predicted":9,"measured":9},
          "peak":{"fast":{"predicted":10,"measured":9}},"moved":{"disk":{"predicted":{"written":4,"read":5},"written":{"bytes":4},"read":{"bytes":6}}},
          "budget":9223372036854775807,"remarks":["slow"]})",
      "report.json"));
  const Json& report = cpp["reports"][0];
  EXPECT_TRUE(report["budget"].is_null());
  EXPECT_EQ(report["exact"], true);
  EXPECT_EQ(report["rows"][0],
            Json::parse(R"({"what":"Time","unit":"s","predicted":1.5,"measured":2})"));
  EXPECT_EQ(report["rows"].back()["measured"], 6);
  EXPECT_EQ(report["remarks"][0], "slow");
  const Json python = data_of(document_page(
      R"({"strategy":"revolve","steps":5,"budget":100,"predicted":{"forwards":9,"seconds":1.5,"peak":{"fast":10},"moved":{"disk":[4,5]}},"measured":{},"remarks":[]})",
      "report.json"));
  EXPECT_TRUE(python["reports"][0]["exact"].is_null());
  EXPECT_EQ(python["reports"][0]["rows"][0]["predicted"], 1.5);
  EXPECT_TRUE(python["reports"][0]["rows"][0]["measured"].is_null());
  EXPECT_EQ(python["reports"][0]["rows"].back()["predicted"], 5);
}

TEST(TracePages, DrawWhatRanAndMoved) {
  const Json data = data_of(document_page(
      R"({"traceEvents":[{"name":"thread_name","ph":"M","pid":0,"tid":2,"args":{"name":"disk writes"}},
          {"name":"advance","ph":"X","tid":0,"ts":1000000,"dur":500000,"args":{"from":0,"to":4}},
          {"name":"write","ph":"X","tid":2,"ts":1000000,"dur":1000000,"args":{"item":"state","step":3,"bytes":9}}],
          "otherData":{"events_left_out":7}})",
      "trace.json"));
  EXPECT_EQ(data["film"]["seconds"], 1);
  EXPECT_EQ(data["film"]["steps"], 4);
  EXPECT_EQ(data["film"]["lanes"][0]["name"], "disk writes");
  EXPECT_EQ(data["film"]["work"]["end"][0], 500'000'000);
  EXPECT_THAT(data["remarks"][0].get<std::string>(), HasSubstr("7 later events"));
}

constexpr const char* kMetrics =
    R"({"iteration":1,"split":"train","loss":0.5,"lr":0.1,"seconds":1,"peak_bytes":1024}
{"iteration":2,"split":"train","loss":null,"lr":0.05,"seconds":2,"peak_bytes":1024}
{"iteration":2,"split":"test","loss":0.25,"accuracy":0.75,"seconds":2}
)";

TEST(TrainingPages, DrawCurvesAndCountWhatIsNotFinite) {
  const Json data = data_of(document_page(kMetrics, "metrics.jsonl"));
  EXPECT_EQ(data["charts"][0]["title"], "Loss");
  EXPECT_EQ(data["charts"][0]["lines"][0]["at"], Json({1}));
  EXPECT_EQ(data["charts"][0]["lines"][0]["missing"], 1);
  EXPECT_EQ(data["charts"][0]["lines"][1]["mean"], Json({0.25}));
  EXPECT_EQ(data["charts"][1]["title"], "Accuracy");
}

TEST(TrainingPages, GroupLongRunsWithoutLosingExtremes) {
  std::string text;
  for (int i = 1; i <= 100'000; ++i) {
    text += "{\"iteration\":" + std::to_string(i) +
            ",\"split\":\"train\",\"loss\":" + (i == 54'321 ? "9" : "1") + "}\n";
  }
  const Json line = data_of(document_page(text, "metrics.jsonl"))["charts"][0]["lines"][0];
  EXPECT_LE(line["at"].size(), 1200U);
  EXPECT_EQ(line["at"].back(), 100'000);
  EXPECT_EQ(std::ranges::count(line["high"], Json(9.0)), 1);
}

TEST(TrainingPages, RefuseWrongTypesByName) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() + "/metrics.jsonl")
      << R"({"iteration":1,"loss":1,"split":5})" << "\n";
  EXPECT_THAT(file_page(folder.path()), HasSubstr("Loss"));
  std::ofstream(folder.path() + "/train.json") << "{broken";
  EXPECT_THAT(file_page(folder.path()), HasSubstr("Loss"));
  std::ofstream(folder.path() + "/metrics.jsonl") << "{\"iterat";
  EXPECT_THAT(message_of([&] { file_page(folder.path()); }),
              HasSubstr("no iteration has finished yet"));
}

TEST(TrainingPages, ShowTheReportInADirectory) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() + "/metrics.jsonl") << kMetrics;
  EXPECT_FALSE(data_of(file_page(folder.path())).contains("reports"));
  std::ofstream(folder.path() + "/report.json")
      << R"({"strategy":"revolve","seconds":{"predicted":1.5,"measured":2}})";
  const Json data = data_of(file_page(folder.path()));
  EXPECT_EQ(data["reports"][0]["rows"][0]["measured"], 2);
  EXPECT_EQ(data["charts"][0]["title"], "Loss");
  for (const char* other : {"{\"strategy\"", "[1]", "{}"}) {
    std::ofstream(folder.path() + "/report.json") << other;
    EXPECT_FALSE(data_of(file_page(folder.path())).contains("reports")) << other;
  }
}

TEST(TrainingPages, ReadDirectoriesAlsoWhileTheyAreWritten) {
  const TemporaryFolder folder;
  EXPECT_THAT(message_of([&] { file_page(folder.path()); }),
              HasSubstr("there is no metrics.jsonl"));
  std::ofstream(folder.path() + "/metrics.jsonl") << kMetrics << "{\"iteration\":3,\"spl";
  std::ofstream(folder.path() + "/train.json") << R"({"options":{"task":"adding","cell":"gru"}})";
  const Json data = data_of(file_page(folder.path()));
  EXPECT_EQ(data["figures"][0], Json::parse(R"(["Task","adding"])"));
  EXPECT_EQ(data["charts"][0]["lines"][0]["name"], "training");
}

TEST(Pages, RefuseOtherText) {
  EXPECT_THAT(refusal(""), HasSubstr("x.json: the file is empty"));
  EXPECT_THAT(refusal("{\"a\":"), HasSubstr("x.json"));
  EXPECT_THAT(refusal("{\"a\":1}"), HasSubstr("pages show what ebb plan --json"));
  EXPECT_THAT(refusal("[1,2]"), HasSubstr("compression reports"));
  EXPECT_THAT(refusal("{\"a\":1}\n{\"b\":2}\n"), HasSubstr("pages show what ebb plan --json"));
  EXPECT_THAT(refusal("{\"traceEvents\":[]}"), HasSubstr("the trace has no event of ebb"));
  EXPECT_THAT(refusal("{\"traceEvents\":[{\"ph\":\"X\",\"name\":5}]}"),
              HasSubstr("was not written by ebb, or has been changed"));
  EXPECT_THAT(refusal(R"({"strategy":"revolve","bound_seconds":1})"),
              HasSubstr("make it again with ebb plan --json"));
  EXPECT_THAT(
      refusal("{\"iteration\":1,\"loss\":1}\n{\"iteration\"x}\n{\"iteration\":2,\"loss\":1}\n"),
      AllOf(HasSubstr("x.json: line 2: not valid JSON at byte "), Not(HasSubstr("line 1"))));
  EXPECT_THAT(refusal("{\"strategy\":\"revolve\",\n\"bound"), HasSubstr("it may be cut off"));
  try {
    file_page("/nowhere/plan.json");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
  }
}

}  // namespace
}  // namespace ebb::test::document_test
