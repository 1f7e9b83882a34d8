// SPDX-License-Identifier: Apache-2.0
// `ebb bench gruslys` end to end.
#include "ebb/cli/gruslys_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/expect.h"
#include "tests/cli/run.h"

namespace ebb::test::gruslys_command_test {
namespace {

using nlohmann::json;
using test::Outcome;
using ::testing::HasSubstr;

Outcome gruslys(const std::string& words) { return test::command("bench gruslys", words); }

// As small as can be.
constexpr const char* kSmall =
    "--quick --hidden 8 --batch 4 --input 3 --steps 120 --lengths 30,90 "
    "--budgets 20 --threads 1 --repeat 2 ";

void check(const json& point) {
  if (point["fits"] == false) {
    EXPECT_GT(point["least_budget"], 0) << point;
    return;
  }
  EXPECT_EQ(point["same_gradient"], true) << point;
  for (const char* key : {"forwards", "peak", "moved"}) {
    EXPECT_EQ(point["predicted"][key], point["measured"][key]) << point;
  }
  for (const char* which : {"predicted", "measured"}) {
    EXPECT_GT(point[which]["seconds_per_time_step"], 0) << point;
    EXPECT_GT(point[which]["ratio"], 0) << point;
  }
  if (point["budget"] != nullptr) {
    EXPECT_LE(point["measured"]["peak"]["fast"], point["budget"]) << point;
  }
}

TEST(BenchGruslys, RunsInPartsOfPlainMemory) {
  const Outcome outcome = gruslys(std::string(kSmall) + "--memory 1,20 --json");
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const json found = json::parse(outcome.out);
  EXPECT_EQ(found["experiment"], "gruslys");
  EXPECT_EQ(found["summary"]["same_gradients"], true);
  const std::int64_t plain = found["plain_bytes"];
  const json& memory = found["series"]["memory"];
  ASSERT_EQ(memory.size(), 5U);
  for (const json& point : memory) check(point);
  EXPECT_EQ(memory[0]["strategy"], "store_all");
  EXPECT_EQ(memory[0]["measured"]["ratio"], 1);
  EXPECT_EQ(memory[1]["fits"], false) << "1 % of so little is less than a step needs";
  EXPECT_EQ(memory[2]["percent"], 20);
  EXPECT_EQ(memory[2]["budget"], plain / 100 * 20);
  EXPECT_GT(memory[2]["measured"]["forwards"], memory[0]["measured"]["forwards"]);
  EXPECT_EQ(memory[3]["strategy"], "sqrt");
  EXPECT_EQ(memory[4]["budget"], memory[3]["measured"]["peak"]["fast"]);
  EXPECT_LE(memory[4]["predicted"]["seconds"].get<double>(),
            memory[3]["predicted"]["seconds"].get<double>() * (1 + 1e-9));
}

TEST(BenchGruslys, KeepsBudgetsOverLengths) {
  const Outcome outcome = gruslys(std::string(kSmall) + "--memory 1,20 --json");
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  const json series = json::parse(outcome.out)["series"]["steps"];
  ASSERT_EQ(series.size(), 2U * 3);
  for (const json& point : series) check(point);
  EXPECT_EQ(series[0]["time_steps"], 30);
  EXPECT_EQ(series[3]["time_steps"], 90);
  EXPECT_EQ(series[1]["budget"], series[4]["budget"]);
  EXPECT_LT(series[2]["measured"]["peak"]["fast"], series[5]["measured"]["peak"]["fast"]);
}

TEST(BenchGruslys, WritesTables) {
  const Outcome outcome = gruslys(
      "--quick --hidden 8 --batch 4 --chunk 1 --steps 600 --lengths 30 --memory 5 --repeat 1");
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  for (const char* text :
       {"(a) Time in a part of plain memory, 600 time steps", "(b) Time per time step", "predicted",
        "measured", "auto: ", "its own", "in 5 % of memory: predicted ", "it would be ",
        "the same bits as store_all's"}) {
    EXPECT_THAT(outcome.out, HasSubstr(text));
  }
  test::expect_fits_a_terminal(outcome.out);
}

TEST(BenchGruslys, WritesCsv) {
  const Outcome outcome = gruslys(std::string(kSmall) + "--memory 1,20 --csv");
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  const std::vector<std::string> lines = test::lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 1U + 5 + 6);
  for (const std::string& line : lines) {
    EXPECT_EQ(std::count(line.begin(), line.end(), ','), 15) << line;
  }
}

TEST(BenchGruslysRefuses, WrongWords) {
  test::expect_refused("bench gruslys",
                       {
                           {"--steps 1", "--steps is '1'"},
                           {"--memory 0", "--memory is '0'"},
                           {"--memory 5,101", "--memory is '101'"},
                           {"--budgets x", "--budgets is 'x'"},
                           {"--lengths 0", "--lengths is '0'"},
                           {"--hidden 0", "--hidden is '0'"},
                           {"--chunk 20000000", "--chunk is '20000000'"},
                           {"--repeat 0", "--repeat is '0'"},
                           {"--json --csv", "--json and --csv contradict each other"},
                           {"--hiden 3", "did you mean --hidden?"},
                       });
}

TEST(BenchGruslysHelp, ReadsWell) {
  test::expect_help(
      "bench gruslys",
      {"--input", "--hidden", "--batch", "--chunk", "--threads", "--steps", "--memory", "--lengths",
       "--budgets", "--repeat", "--quick", "--json", "--csv", "--view", "Examples", "Exit codes"});
}

}  // namespace
}  // namespace ebb::test::gruslys_command_test
