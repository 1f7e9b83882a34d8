// SPDX-License-Identifier: Apache-2.0
// `ebb bench double` end to end.
#include "ebb/cli/double_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/expect.h"
#include "tests/cli/run.h"

namespace ebb::test::double_command_test {
namespace {

using nlohmann::json;
using test::Outcome;
using ::testing::HasSubstr;

Outcome run_double(const std::string& words) { return test::command("bench double", words); }

// As small as can be.
constexpr const char* kSmall =
    "--quick --hidden 32 --batch 2 --input 16 --chunk 1 --budget 24KiB --longer 3 --rates 5 "
    "--repeat 1 ";

void check(const json& point, const json& found) {
  ASSERT_EQ(point["fits"], true) << point;
  EXPECT_EQ(point["same_gradient"], true) << point;
  for (const char* key : {"forwards", "peak", "moved"}) {
    EXPECT_EQ(point["predicted"][key], point["measured"][key]) << point;
  }
  EXPECT_LE(point["measured"]["peak"]["fast"], found["budget"]) << point;
  EXPECT_GT(point["predicted"]["ratio"], 0.99) << point;
  EXPECT_GT(point["measured"]["ratio"], 0) << point;
  EXPECT_GT(point["plain_seconds_per_time_step"], 0) << point;
}

void check_bandwidth(const json& points) {
  ASSERT_EQ(points.size(), 5U);
  EXPECT_EQ(points[0]["factor"], 1.0 / 16);
  for (const char* strategy : {"single_remote", "double", "auto"}) {
    const double slow = points[0]["predicted_ratio"][strategy];
    const double quick = points[4]["predicted_ratio"][strategy];
    EXPECT_LE(quick, slow * 1.001) << strategy;
    const double now = points[2]["predicted_ratio"][strategy];
    EXPECT_LE(points[2]["predicted_ratio"]["auto"], now * 1.001) << strategy;
  }
}

TEST(BenchDouble, RunsEveryStrategyInTheBudget) {
  const Outcome outcome = run_double(std::string(kSmall) + "--json");
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const json found = json::parse(outcome.out);
  EXPECT_EQ(found["experiment"], "double");
  EXPECT_EQ(found["budget"], 24 << 10);
  const std::int64_t plain = found["plain_time_steps"];
  EXPECT_GT(plain, 4);
  EXPECT_GT(found["paper_ratio"], 1);
  ASSERT_EQ(found["arrangements"].size(), 2U);
  for (const json& arrangement : found["arrangements"]) {
    const json& series = arrangement["series"];
    ASSERT_EQ(series["longest"].size(), 5U * 2);
    ASSERT_EQ(series["length"].size(), 3U);
    ASSERT_EQ(series["largest"].size(), 5U);
    ASSERT_EQ(series["activity"].size(), 2U);
    for (const char* name : {"longest", "length", "largest", "activity"}) {
      for (const json& point : series[name]) check(point, found);
    }
    EXPECT_EQ(series["longest"][0]["most"], plain);
    EXPECT_EQ(series["longest"][0]["time_steps"], plain);
    EXPECT_EQ(series["longest"][1]["sync"], true);
    EXPECT_GT(series["longest"][2]["most"], plain) << "checkpoints in local memory go further";
    EXPECT_EQ(series["longest"][8]["strategy"], "auto");
    EXPECT_EQ(series["longest"][8]["time_steps"], 10 * plain);
    EXPECT_EQ(series["length"][2]["time_steps"], 3 * plain);
    EXPECT_GT(series["largest"][4]["most"], series["largest"][0]["most"]);
    EXPECT_GT(series["largest"][4]["hidden"], 32);
    check_bandwidth(series["bandwidth"]);
  }
}

TEST(BenchDouble, WritesTables) {
  const Outcome outcome = run_double(std::string(kSmall) + "--tier ram:memory");
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  for (const char* text : {"Local memory over ram", "(a) The longest sequence", "(b) What 10 times",
                           "(c) Time against the length", "(d) The largest net",
                           "(e) Against activity", "(f) Against the slow memory's bandwidth",
                           "in turn", "single_remote", "auto: ", "10 times as long",
                           "4 times as large", "the same bits as plain's in every run"}) {
    EXPECT_THAT(outcome.out, HasSubstr(text));
  }
  test::expect_fits_a_terminal(outcome.out);
}

TEST(BenchDouble, WritesCsv) {
  // With fewer time steps than fit.
  const Outcome outcome = run_double(std::string(kSmall) + "--tier ram:memory --steps 4 --csv");
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  const std::vector<std::string> lines = test::lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 1U + 10 + 3 + 5 + 2 + 5 * 3);
  for (const std::string& line : lines) {
    EXPECT_EQ(std::count(line.begin(), line.end(), ','), 19) << line;
  }
  EXPECT_THAT(lines[1], HasSubstr(",store_all,4,"));
  EXPECT_THAT(lines[11], HasSubstr(",single_remote,12,"));
}

TEST(BenchDoubleRefuses, WrongWords) {
  test::expect_refused("bench double",
                       {
                           {"--steps 0", "--steps is '0'"},
                           {"--density 101", "--density is '101'"},
                           {"--rate 0", "--rate is '0'"},
                           {"--rates 5,x", "--rates is 'x'"},
                           {"--longer 0", "--longer is '0'"},
                           {"--hidden 0", "--hidden is '0'"},
                           {"--chunk 0", "--chunk is '0'"},
                           {"--weight-scale 0", "--weight-scale is '0'"},
                           {"--budget 0", "--budget is '0'"},
                           {"--tier ram", "--tier"},
                           {"--json --csv", "--json and --csv contradict each other"},
                           {"--budgets 3", "did you mean --budget?"},
                       });
}

TEST(BenchDoubleFails, WhereNothingFitsOrATierIsMissing) {
  const Outcome tight = run_double("--quick --hidden 32 --batch 2 --budget 1KiB");
  EXPECT_EQ(tight.code, kDoesNotFit);
  EXPECT_THAT(tight.err, HasSubstr("has no room for one step in 1 KiB"));
  const Outcome missing = run_double(std::string(kSmall) + "--tier disk:file=/no/such/place");
  EXPECT_EQ(missing.code, kFailure);
  EXPECT_THAT(missing.err, HasSubstr("/no/such/place"));
}

TEST(BenchDoubleHelp, ReadsWell) {
  test::expect_help(
      "bench double",
      {"--input",   "--hidden", "--batch", "--density", "--rate",   "--weight-scale", "--chunk",
       "--threads", "--budget", "--tier",  "--steps",   "--longer", "--rates",        "--repeat",
       "--quick",   "--json",   "--csv",   "--view",    "Examples", "Exit codes"});
}

}  // namespace
}  // namespace ebb::test::double_command_test
