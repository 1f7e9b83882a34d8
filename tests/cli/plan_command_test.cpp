// SPDX-License-Identifier: Apache-2.0
// `ebb plan` end to end: every option, every way to fail, every form of the answer.
#include "ebb/cli/plan_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "ebb/plan/strategies.h"
#include "tests/cli/run.h"

namespace ebb::test::plan_command_test {
namespace {

using nlohmann::json;
using test::Outcome;
using test::plan;
using test::TemporaryFile;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

json json_of(const std::string& words) {
  const Outcome outcome = plan(words + " --json");
  EXPECT_EQ(outcome.code, kDone) << words << '\n' << outcome.err;
  EXPECT_EQ(outcome.err, "");
  return outcome.code == kDone ? json::parse(outcome.out) : json();
}

TEST(PlanJson, HasExactlyTheWordsOfTheDesign) {
  const json answer = json_of("--steps 10 --strategy revolve --slots 3");
  for (const char* key :
       {"strategy", "steps", "forwards", "advances", "records", "seconds", "bound_seconds",
        "optimal", "peak", "moved", "stall_seconds", "actions", "plan_seconds", "least_budget"}) {
    EXPECT_TRUE(answer.contains(key)) << key;
  }
  EXPECT_EQ(answer["strategy"], "revolve");
  EXPECT_EQ(answer["steps"], 10);
  EXPECT_EQ(answer["forwards"], 25);
  EXPECT_EQ(answer["advances"], 15);
  EXPECT_EQ(answer["records"], 10);
  EXPECT_EQ(answer["seconds"], 45);
  EXPECT_EQ(answer["optimal"], true);
  EXPECT_EQ(answer["peak"]["fast"], 3);
  EXPECT_EQ(answer["moved"], json::object());
  EXPECT_EQ(answer["least_budget"], 1);
  EXPECT_LE(answer["bound_seconds"].get<double>(), 45);
  EXPECT_GE(answer["plan_seconds"].get<double>(), 0);
}

TEST(PlanOptionsGiven, CostsAndSizesReachThePlanner) {
  const json answer = json_of(
      "--steps 4 --strategy store_all --forward 0.5 --record 0.75 --backward 1.25 --state 3KiB "
      "--tape 10KB");
  EXPECT_EQ(answer["seconds"], 4 * (0.75 + 1.25));
  EXPECT_EQ(answer["forwards"], 4);
  // Live state, adjoint and four tapes; the fourth is the working set's own.
  EXPECT_GE(answer["peak"]["fast"].get<std::int64_t>(), 4 * 10000);
  EXPECT_LE(answer["peak"]["fast"].get<std::int64_t>(), 4 * 10000 + 2 * 3072);
  EXPECT_EQ(json_of("--steps 4 --strategy store_all --forward 0.5")["seconds"], 4 * 2.5);
}

TEST(PlanOptionsGiven, BudgetAndWorkingReachThePlanner) {
  // Convention A of the literature: 2 extra units, the working set free.
  EXPECT_EQ(json_of("--steps 10 --strategy msm --budget 2 --working 0")["forwards"], 18);
  EXPECT_EQ(json_of("--steps 50 --strategy msm --tape 2 --budget 10 --working 0")["forwards"], 111);
}

TEST(PlanOptionsGiven, TiersAreNamedInOrder) {
  const json answer = json_of(
      "--steps 10 --strategy h_revolve --slots 1 --backward 1 --sync --tier "
      "disk:slots=2,write_time=2,read_time=2 --tier tape");
  EXPECT_TRUE(answer["peak"].contains("disk") && answer["peak"].contains("tape")) << answer;
  EXPECT_LE(answer["peak"]["disk"].get<std::int64_t>(), 2);
  // peers.md 7.2: H-Revolve 10, (1,2) costs 36; we add N recording forwards.
  EXPECT_EQ(json_of("--steps 10 --strategy h_revolve --slots 1 --backward 1 --sync "
                    "--tier disk:slots=2,write_time=2,read_time=2")["seconds"],
            36 + 10);
}

TEST(PlanOptionsGiven, IntervalAndPeriodFixWhatWouldBeSearched) {
  const json fixed = json_of("--steps 64 --strategy single_local --interval 16");
  EXPECT_THAT(fixed["parameters"].dump(), HasSubstr("16"));
  const json periodic = json_of(
      "--steps 60 --strategy periodic_disk --slots 3 --period 12 --sync --tier "
      "disk:write_time=2,read_time=2");
  EXPECT_THAT(periodic["parameters"].dump(), HasSubstr("12"));
}

TEST(PlanOptionsGiven, AnIntervalBeyondTheChainIsTheChain) {
  for (const char* strategy : {"async", "pofo", "single_remote", "levels"}) {
    const std::string words =
        std::string("--steps 30 --budget 40 --tier disk:write_time=1,read_time=1 --strategy ") +
        strategy;
    EXPECT_EQ(json_of(words + " --interval 30")["seconds"],
              json_of(words + " --interval 9223372036854775807")["seconds"])
        << strategy;
  }
}

TEST(PlanOptionsGiven, SyncPutsTransfersOnTheComputeLane) {
  const std::string words =
      "--steps 100 --strategy async --budget 10 --tier disk:write_time=2,read_time=2";
  EXPECT_LT(json_of(words)["seconds"].get<double>(),
            json_of(words + " --sync")["seconds"].get<double>());
}

TEST(PlanOptionsGiven, PlatformIsAPresetOrAFileAndBudgetOverridesIt) {
  const TemporaryFile file(
      "box.json", R"({"name":"box","fast":9,"tiers":[{"name":"cupboard","write":1,"read":1}]})");
  const json answer = json_of("--steps 30 --strategy revolve --platform " + file.path());
  EXPECT_LE(answer["peak"]["fast"].get<std::int64_t>(), 9);
  EXPECT_TRUE(answer["peak"].contains("cupboard"));
  EXPECT_GT(
      json_of("--steps 30 --strategy revolve --budget 20 --platform " + file.path())["peak"]["fast"]
          .get<std::int64_t>(),
      9);
  EXPECT_TRUE(json_of("--steps 30 --platform h200-node --tier attic")["peak"].contains("attic"));
}

TEST(PlanOptionsGiven, ChainFileGivesEveryStep) {
  const TemporaryFile same("same.json", R"({"repeat":10,"step":{"forward":1,"backward":2}})");
  EXPECT_EQ(json_of("--strategy revolve --slots 3 --chain " + same.path())["seconds"], 45);
  const TemporaryFile each(
      "each.json", R"({"steps":[{"forward":1},{"forward":2,"tape":"1KiB"},{"forward":3}]})");
  EXPECT_EQ(json_of("--strategy store_all --chain " + each.path())["seconds"], 3 * (1 + 2 + 3));
}

TEST(PlanOptionsGiven, ZeroOneAndTwoStepsWork) {
  for (const char* steps : {"0", "1", "2"}) {
    const json answer = json_of(std::string("--strategy revolve --slots 2 --steps ") + steps);
    EXPECT_EQ(std::to_string(answer["records"].get<std::int64_t>()), steps);
    EXPECT_EQ(plan(std::string("--steps ") + steps).code, kDone);
  }
}

TEST(PlanSummary, AnswersInWordsWithAPicture) {
  const Outcome outcome = plan("--steps 10 --strategy revolve --slots 3");
  EXPECT_EQ(outcome.code, kDone);
  EXPECT_EQ(outcome.err, "");
  for (const char* part :
       {"It fits in 3 slots (3 B).", "10 steps; forward 1 s",
        "revolve: ", "Griewank & Walther 2000", "45 s, 1.5 x keeping every tape",
        "no exact plan takes less than", "25, 2.5 per step (15 advances, 10 records)",
        "fast: 3 B of 3 B (100 %)", "1 slot (1 B)",
        "The schedule, steps across, time down:", "0123456789"}) {
    EXPECT_THAT(outcome.out, HasSubstr(part));
  }
  EXPECT_THAT(plan("--steps 200 --strategy revolve --slots 3").out, Not(HasSubstr("The schedule")));
  EXPECT_THAT(plan("--steps 10").out, HasSubstr("(chosen by auto)"));
  EXPECT_THAT(
      plan("--steps 8 --strategy disk_revolve --slots 1 --tier disk:write_time=2,read_time=2").out,
      AllOf(HasSubstr("disk: "), HasSubstr("written")));
}

TEST(PlanActions, AreOneJsonObjectALine) {
  const Outcome outcome = plan("--steps 10 --strategy revolve --slots 3 --actions");
  EXPECT_EQ(outcome.code, kDone);
  const std::vector<std::string> lines = test::lines_of(outcome.out);
  EXPECT_EQ(lines.size(), json_of("--steps 10 --strategy revolve --slots 3")["actions"]);
  std::int64_t forwards = 0;
  for (const std::string& line : lines) {
    const json action = json::parse(line);
    if (action["action"] == "advance" || action["action"] == "record") {
      forwards += action["to"].get<std::int64_t>() - action["from"].get<std::int64_t>();
    }
  }
  EXPECT_EQ(forwards, 25);
  EXPECT_EQ(plan("--steps 10 --strategy revolve --slots 3 --format ebb").out, outcome.out);
}

TEST(PlanActions, FollowTheSummaryWithJson) {
  const std::vector<std::string> lines =
      test::lines_of(plan("--steps 10 --strategy revolve --slots 3 --json --actions").out);
  ASSERT_GT(lines.size(), 1U);
  EXPECT_EQ(json::parse(lines[0])["actions"], lines.size() - 1);
  EXPECT_TRUE(json::parse(lines[1]).contains("action"));
}

TEST(PlanActions, SpeakCheckpointSchedules) {
  const Outcome outcome =
      plan("--steps 10 --strategy revolve --slots 3 --format checkpoint_schedules");
  EXPECT_EQ(outcome.code, kDone) << outcome.err;
  const std::vector<std::string> lines = test::lines_of(outcome.out);
  EXPECT_EQ(json::parse(lines.front())["action"], "Forward");
  EXPECT_EQ(json::parse(lines.back())["action"], "EndReverse");
  const Outcome refused =
      plan("--steps 10 --strategy ism --budget 5 --format checkpoint_schedules");
  EXPECT_EQ(refused.code, kBadUsage) << refused.out;
  EXPECT_EQ(refused.out, "");
  EXPECT_THAT(refused.err, HasSubstr("cannot be said in checkpoint_schedules"));
}

TEST(PlanSweep, IsATableOrAnArray) {
  const Outcome table = plan("--steps 100 --strategy revolve --sweep");
  EXPECT_EQ(table.code, kDone) << table.err;
  EXPECT_THAT(table.out, AllOf(HasSubstr("budget"), HasSubstr("forwards/step"), HasSubstr("gap")));
  const json points = json_of("--steps 100 --strategy revolve --sweep");
  ASSERT_TRUE(points.is_array());
  ASSERT_GE(points.size(), 3U);
  for (std::size_t i = 1; i < points.size(); ++i) {
    EXPECT_GT(points[i]["budget"], points[i - 1]["budget"]);
    EXPECT_LE(points[i]["seconds"], points[i - 1]["seconds"]);
    EXPECT_LE(points[i]["peak"]["fast"], points[i]["budget"]);
  }
  EXPECT_EQ(points[0]["budget"], points[0]["least_budget"]);
  EXPECT_THAT(plan("--steps 100 --strategy revolve --sweep --slots 1").out, HasSubstr("slots ("));
}

TEST(PlanLargest, IsTheLongestChainThatFits) {
  const json answer = json_of("--largest --strategy store_all --budget 100 --tape 10");
  const std::int64_t steps = answer["largest_steps"].get<std::int64_t>();
  ASSERT_GT(steps, 0);
  EXPECT_EQ(
      plan("--strategy store_all --budget 100 --tape 10 --steps " + std::to_string(steps)).code,
      kDone);
  EXPECT_EQ(
      plan("--strategy store_all --budget 100 --tape 10 --steps " + std::to_string(steps + 1)).code,
      kDoesNotFit);
  EXPECT_THAT(plan("--largest --strategy store_all --budget 100 --tape 10").out,
              HasSubstr("up to " + std::to_string(steps)));
  EXPECT_TRUE(json_of("--largest --strategy revolve --budget 100")["largest_steps"].is_null());
  EXPECT_THAT(plan("--largest --strategy revolve --budget 100").out,
              HasSubstr("whatever the number of steps"));
}

TEST(PlanStrategies, ListsTheRegistry) {
  const Outcome table = plan("--strategies");
  EXPECT_EQ(table.code, kDone);
  const json list = json_of("--strategies");
  EXPECT_EQ(list.size(), strategies().size());
  for (const StrategyRow& row : strategies())
    EXPECT_THAT(table.out, HasSubstr(std::string(row.name)));
}

TEST(PlanFailures, TooSmallABudgetNamesTheLeastAndRemedies) {
  const Outcome outcome = plan("--steps 100 --strategy store_all --budget 50");
  EXPECT_EQ(outcome.code, kDoesNotFit);
  EXPECT_EQ(outcome.out, "");
  const std::int64_t least = json_of("--steps 100 --strategy store_all")["least_budget"];
  EXPECT_THAT(outcome.err, HasSubstr(std::to_string(least)));
  EXPECT_EQ(plan("--steps 100 --strategy store_all --budget " + std::to_string(least)).code, kDone);
  EXPECT_EQ(plan("--steps 100 --strategy store_all --budget " + std::to_string(least - 1)).code,
            kDoesNotFit);
  EXPECT_EQ(plan("--steps 100 --strategy store_all --budget 50 --json").out, "");
}

constexpr std::pair<const char*, const char*> kBadWords[] = {
    {"", "--steps is missing"},
    {"--steps -1", "--steps is '-1'; it must be a whole number from 0 to 1000000000000"},
    {"--steps nan", "--steps is 'nan'"},
    {"--steps 1e30", "--steps is '1e30'"},
    {"--steps 9223372036854775808", "--steps is '9223372036854775808'"},
    {"--steps ten", "--steps is 'ten'"},
    {"--steps 5 --forward -1", "--forward is '-1'"},
    {"--steps 5 --forward inf", "--forward is 'inf'"},
    {"--steps 5 --record nan", "--record is 'nan'"},
    {"--steps 5 --backward 1e16", "--backward is '1e16'"},
    {"--steps 5 --state 0", "--state is '0'"},
    {"--steps 5 --state 8EiB", "--state is '8EiB'"},
    {"--steps 5 --tape -3", "--tape is '-3'"},
    {"--steps 5 --tape unlimited", "--tape is 'unlimited'"},
    {"--steps 5 --budget 9223372036854775808", "--budget is '9223372036854775808'"},
    {"--steps 5 --budget -1", "--budget is '-1'"},
    {"--steps 5 --budget 0%", "--budget is '0%'"},
    {"--largest --budget 5%", "--largest and --budget 5% contradict"},
    {"--steps 5 --slots -1", "--slots is '-1'"},
    {"--steps 5 --slots 2.5", "--slots is '2.5'"},
    {"--steps 5 --working x", "--working is 'x'"},
    {"--steps 5 --interval 3,0", "--interval is '0'"},
    {"--steps 5 --period 0", "--period is '0'"},
    {"--steps 5 --strategy revolv", "did you mean revolve?"},
    {"--steps 5 --strategy banana", "it must be one of store_all"},
    {"--steps 5 --format xml", "--format is 'xml'; it must be ebb or checkpoint_schedules"},
    {"--steps 5 --platform lapto", "did you mean laptop?"},
    {"--steps 5 --platform banana", "h200-node, ipu-mk2, ipu-mk2-tile, laptop"},
    {"--steps 5 --tier disk:size=3", "--tier disk: cannot read 'size=3'"},
    {"--steps 5 --tier disk --tier disk", "two tiers are named 'disk'"},
    {"--steps 5 --slots 3 --budget 4", "--slots and --budget contradict"},
    {"--steps 5 --slots 3 --working 4", "--slots and --working contradict"},
    {"--steps 5 --sweep --largest", "--sweep and --largest contradict"},
    {"--steps 5 --sweep --budget 9", "--sweep and --budget contradict"},
    {"--steps 5 --sweep --actions", "--actions is for one plan"},
    {"--steps 5 --largest", "--largest and --steps contradict"},
    {"--steps 5 --bananas", "unknown word '--bananas'"},
    {"--steps 5 --strateg auto", "did you mean --strategy?"},
    {"--steps 5 6", "unknown word '6'"},
    {"--steps 5 --steps 6", "--steps needs exactly one value"},
    {"--steps", "--steps needs exactly one value"},
    {"--steps 5 --strategy store_all --slots 3", "slots"},
    {"--steps 5 --strategy disk_revolve --budget 9", "tier"},
};

TEST(PlanBudget, MayBeAShare) {
  const std::string chain = "--steps 100 --state 1KiB --tape 4KiB ";
  const std::int64_t all = json_of(chain + "--strategy store_all")["least_budget"];
  EXPECT_EQ(json_of(chain + "--budget 100%")["strategy"], "store_all");
  EXPECT_EQ(json_of(chain + "--budget 20%")["seconds"],
            json_of(chain + "--budget " + std::to_string(all * 20 / 100))["seconds"]);
}

TEST(PlanBudget, IsRefusedInTheUnitThatWasUsed) {
  const std::string chain = "--steps 100 --state 1KiB --tape 4KiB ";
  const Outcome share = plan(chain + "--budget 0.1%");
  EXPECT_EQ(share.code, kDoesNotFit);
  const std::string before = "takes it needs at least ";
  const std::size_t at = share.err.find(before);
  ASSERT_NE(at, std::string::npos) << share.err;
  const std::size_t from = at + before.size();
  const std::string least = share.err.substr(from, share.err.find('%', from) + 1 - from);
  EXPECT_EQ(plan(chain + "--budget " + least).code, kDone) << least;
  EXPECT_THAT(plan(chain + "--budget 5").err, HasSubstr("did you mean 5% of what keeping"));
  EXPECT_EQ(plan("--steps 100 --strategy store_all --budget 5").err.find("did you mean"),
            std::string::npos);
}

TEST(PlanFailures, BadWordsNameTheOptionAndWhatIsAllowed) {
  for (const auto& [words, expected] : kBadWords) {
    const Outcome outcome = plan(words);
    EXPECT_EQ(outcome.code, kBadUsage) << words << '\n' << outcome.out;
    EXPECT_EQ(outcome.out, "") << words;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("ebb plan: "), HasSubstr(expected))) << words;
    EXPECT_LE(test::lines_of(outcome.err).size(), 2U) << outcome.err;
  }
}

TEST(PlanFailures, FilesThatCannotBeReadAreFailuresAndBadOnesBadInput) {
  for (const char* option : {"--chain", "--platform"}) {
    const std::string steps = option == std::string("--platform") ? "--steps 5 " : "";
    const Outcome absent = plan(steps + option + " /nowhere/at/all.json");
    EXPECT_EQ(absent.code, kFailure);
    EXPECT_THAT(absent.err, AllOf(HasSubstr(option), HasSubstr("/nowhere/at/all.json")));
    EXPECT_EQ(plan(steps + option + " /").code, kFailure);
    const TemporaryFile truncated("half.json", "{\"steps\": [{\"forward\": 1},\n {\"for");
    const Outcome bad = plan(steps + option + " " + truncated.path());
    EXPECT_EQ(bad.code, kBadUsage);
    EXPECT_THAT(bad.err,
                AllOf(HasSubstr("half.json"), HasSubstr("not valid JSON at line 2, byte ")));
  }
}

TEST(PlanFailures, AChainFileSaysItAll) {
  const TemporaryFile file("chain.json", R"({"steps":[{"state":1},{"state":2}]})");
  for (const char* other :
       {"--steps 3", "--forward 1", "--record 1", "--backward 1", "--state 1", "--tape 1"}) {
    const Outcome outcome = plan("--chain " + file.path() + " " + other);
    EXPECT_EQ(outcome.code, kBadUsage);
    EXPECT_THAT(outcome.err, HasSubstr("contradict"));
  }
  EXPECT_THAT(plan("--chain " + file.path() + " --slots 2 --strategy revolve").err,
              HasSubstr("differ in size"));
  EXPECT_THAT(plan("--chain " + file.path() + " --tier disk:slots=3").err,
              HasSubstr("differ in size"));
  EXPECT_THAT(plan("--chain " + file.path() + " --largest").err,
              HasSubstr("--largest repeats one step"));
}

}  // namespace
}  // namespace ebb::test::plan_command_test
