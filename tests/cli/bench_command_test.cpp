// SPDX-License-Identifier: Apache-2.0
// `ebb bench` end to end.
#include "ebb/cli/bench_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>

#include "ebb/core/bytes.h"
#include "tests/cli/expect.h"
#include "tests/cli/run.h"

namespace ebb::test::bench_command_test {
namespace {

using nlohmann::json;
using test::Outcome;
using ::testing::HasSubstr;

Outcome async(const std::string& words) { return test::command("bench async", words); }

// As small as can be.
constexpr const char* kSmall =
    "--quick --state 4KiB --steps 10,30 --interval 1,4,30 --vary-sweeps 1,3 ";

void check(const json& point, const json& tiers) {
  for (const char* key : {"steps", "sweeps", "transfer_seconds"}) EXPECT_GT(point[key], 0) << key;
  // Measured while the machine is busy with other things, a step may seem to take no time.
  EXPECT_GE(point["forward_seconds"], 0) << point;
  EXPECT_TRUE(point["ratio"].is_null() || point["ratio"] > 0) << point;
  if (point["fits"] == false) {
    EXPECT_GT(point["least_budget"], 0) << point;
    return;
  }
  EXPECT_EQ(point["predicted"]["forwards"], point["measured"]["forwards"]) << point;
  EXPECT_EQ(point["predicted"]["peak"], point["measured"]["peak"]) << point;
  EXPECT_EQ(point["predicted"]["moved"], point["measured"]["moved"]) << point;
  EXPECT_EQ(point["same_gradient"], true) << point;
  EXPECT_GT(point["footprint"], 0);
  for (const char* which : {"predicted", "measured"}) {
    const json& found = point[which];
    EXPECT_NEAR(found["seconds_per_step"].get<double>(),
                found["seconds"].get<double>() / point["steps"].get<double>(), 1e-12);
    for (const json& tier : tiers)
      EXPECT_TRUE(found["peak"].contains(tier["name"].get<std::string>()));
  }
}

TEST(BenchAsync, ATierThatKeepsNothingIsNotExact) {
  const std::string words = std::string(kSmall) + "--tier x:null ";
  EXPECT_THAT(async(words).out, HasSubstr("NOT EXACT: a tier keeps nothing"));
  const json found = json::parse(async(words + "--json").out);
  EXPECT_EQ(found["summary"]["exact"], false);
}

TEST(BenchAsync, RunsEveryStrategyAsPredicted) {
  const Outcome outcome = async(std::string(kSmall) + "--json");
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const json found = json::parse(outcome.out);
  EXPECT_EQ(found["experiment"], "async");
  EXPECT_EQ(found["state"], 4 << 10);
  // The working set, 5 states, and 10.
  EXPECT_EQ(found["budget"], 15 * (4 << 10));
  const json& series = found["series"];
  EXPECT_EQ(series["steps"].size(), 2U * 6);
  EXPECT_EQ(series["interval"].size(), 3U);
  EXPECT_EQ(series["ratio"].size(), 2U * 6);
  std::set<std::string> strategies, fitting;
  for (const json& points : series) {
    for (const json& point : points) {
      check(point, found["platform"]["tiers"]);
      strategies.insert(point["strategy"]);
      if (point["fits"] == true) fitting.insert(point["strategy"].get<std::string>());
    }
  }
  EXPECT_EQ(strategies, (std::set<std::string>{"async", "auto", "disk_revolve", "h_revolve",
                                               "revolve", "store_all"}));
  EXPECT_EQ(fitting,
            (std::set<std::string>{"async", "auto", "disk_revolve", "h_revolve", "revolve"}));
  EXPECT_EQ(series["interval"][1]["interval"], 4);
  EXPECT_EQ(series["steps"][0]["interval"], nullptr);
  EXPECT_EQ(found["summary"]["same_forwards"], true);
  EXPECT_EQ(found["summary"]["same_gradients"], true);
  EXPECT_EQ(found["summary"]["points"], 10 + 3 + 10);
}

TEST(BenchAsync, CountsMemoryTiersAsMemory) {
  const Outcome outcome = async(std::string(kSmall) + "--tier ram:memory --json");
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  const json found = json::parse(outcome.out);
  for (const json& point : found["series"]["interval"]) {
    check(point, found["platform"]["tiers"]);
    const json& peak = point["measured"]["peak"];
    EXPECT_EQ(point["footprint"], peak["fast"].get<Bytes>() + peak["ram"].get<Bytes>());
  }
}

TEST(BenchAsync, StoresEverythingWhereItFits) {
  const Outcome outcome = async(std::string(kSmall) + "--budget unlimited --json");
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  const json found = json::parse(outcome.out);
  for (const json& point : found["series"]["steps"]) {
    EXPECT_EQ(point["fits"], true);
    if (point["strategy"] == "auto") {
      EXPECT_EQ(point["chosen"], "store_all");
    }
    if (point["strategy"] == "store_all") {
      EXPECT_EQ(point["measured"]["forwards"], point["steps"]);
    }
  }
}

TEST(BenchAsync, WritesTables) {
  const Outcome outcome = async(kSmall);
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  for (const char* text :
       {"(a) Time per step against the number of steps", "(b) Time per step of async", "(c) Time",
        "predicted", "measured", "h_revolve", "does not fit (least ", "async         fastest at",
        "every count of forwards exact", "the same bits whatever the strategy"}) {
    EXPECT_THAT(outcome.out, HasSubstr(text));
  }
  test::expect_fits_a_terminal(outcome.out);
}

TEST(BenchAsync, WritesCsv) {
  const Outcome outcome = async(std::string(kSmall) + "--csv");
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  const std::vector<std::string> lines = test::lines_of(outcome.out);
  EXPECT_EQ(lines.size(), 1U + 12 + 3 + 12);
  for (const std::string& line : lines) {
    EXPECT_EQ(std::count(line.begin(), line.end(), ','), 12) << line;
  }
}

TEST(BenchRefuses, WrongWords) {
  test::expect_refused(
      "bench async",
      {
          {"--steps 0", "--steps is '0'"},
          {"--steps 10,", "--steps is ''"},
          {"--interval 0", "--interval is '0'"},
          {"--steps 10 --interval 5,11", "--interval is '5,11'; it must be up to 10"},
          {"--vary-sweeps x", "--vary-sweeps is 'x'"},
          {"--repeat 0", "--repeat is '0'"},
          {"--state 1", "--state is '1'"},
          {"--tier disk:slots=3", "slots counts states"},
          {"--json --csv", "--json and --csv contradict each other"},
          {"--repeats 3", "did you mean --repeat?"},
      });
  EXPECT_THAT(test::command("bench", "asnyc").err, HasSubstr("did you mean async?"));
  const Outcome nothing = test::run({"bench"});
  EXPECT_EQ(nothing.code, kBadUsage);
  EXPECT_THAT(nothing.err, HasSubstr("say what to do, such as ebb bench async"));
}

TEST(BenchFails, WhereNothingFitsOrATierIsMissing) {
  const Outcome tight = async(std::string(kSmall) + "--budget 1KiB");
  EXPECT_EQ(tight.code, kDoesNotFit);
  EXPECT_THAT(tight.err, HasSubstr("no strategy fits in 1 KiB; the least budget of any is "));
  const Outcome missing = async(std::string(kSmall) + "--tier disk:file=/no/such/place");
  EXPECT_EQ(missing.code, kFailure);
  EXPECT_THAT(missing.err, HasSubstr("/no/such/place"));
  EXPECT_EQ(missing.out, "");
}

TEST(BenchHelp, ReadsWell) {
  const Outcome bench = test::run({"bench", "--help"});
  EXPECT_EQ(bench.code, kDone);
  EXPECT_THAT(bench.out, HasSubstr("async"));
  for (const std::string& line : test::lines_of(bench.out)) EXPECT_LE(line.size(), 80U) << line;
  test::expect_help("bench async", {"--state", "--sweeps", "--budget", "--tier", "--steps",
                                    "--interval", "--vary-sweeps", "--repeat", "--quick", "--json",
                                    "--csv", "--view", "Examples", "Exit codes"});
}

void ignore_early(int) {}

// A run of hours, and one SIGINT once the command watches for it.
TEST(BenchAsync, CtrlCCancels) {
  struct sigaction ours{};
  struct sigaction before{};
  ours.sa_handler = ignore_early;
  sigaction(SIGINT, &ours, &before);
  std::thread user([] {
    struct sigaction now{};
    do {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      sigaction(SIGINT, nullptr, &now);
    } while (now.sa_handler == ignore_early);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    kill(getpid(), SIGINT);
  });
  const Outcome outcome = async("--quick --state 64KiB --steps 100000 --sweeps 1000 --budget 4MiB");
  user.join();
  struct sigaction after{};
  sigaction(SIGINT, &before, &after);
  EXPECT_EQ(outcome.code, kCancelled);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err, "ebb bench async: cancelled\n");
  EXPECT_EQ(after.sa_handler, ignore_early) << "the handler from before is back";
}

}  // namespace
}  // namespace ebb::test::bench_command_test
