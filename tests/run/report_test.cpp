// SPDX-License-Identifier: Apache-2.0
#include "ebb/run/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ebb/run/run.h"
#include "tests/conformance/walk.h"
#include "tests/run/slow_medium.h"

namespace ebb::test::report_test {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

struct Ran {
  std::unique_ptr<TestStep> step = small_step(300);
  std::unique_ptr<ebb::Run> run;

  explicit Ran(std::size_t trace_events) {
    RunOptions options = planned(*step, {memory_tier(1_MiB)});
    options.strategy = "async";
    options.budget = 2000;
    options.trace_events = trace_events;
    run = std::make_unique<ebb::Run>(*step, options);
    results_of(*run, *step);
  }
};

TEST(Report, TextAndJsonSayTheSame) {
  const Ran ran(0);
  const Report report = ran.run->report();
  const Json json = Json::parse(report.json());
  EXPECT_EQ(json["strategy"], "async");
  EXPECT_EQ(json["steps"], 300);
  EXPECT_EQ(json["forwards"]["predicted"], json["forwards"]["measured"]);
  EXPECT_EQ(json["forwards"]["measured"], report.measured.forwards());
  EXPECT_EQ(json["peak"]["fast"]["measured"], report.booked);
  EXPECT_EQ(json["peak"]["ram"]["predicted"], json["peak"]["ram"]["measured"]);
  EXPECT_EQ(json["moved"]["ram"]["predicted"]["written"], json["moved"]["ram"]["written"]["bytes"]);
  EXPECT_GT(json["moved"]["ram"]["written"]["states"], 0);
  EXPECT_EQ(json["budget"], 2000);
  EXPECT_FALSE(json["first_states"]["ram"].empty());
  // Initial and final state, both adjoints.
  EXPECT_EQ(json["callers_bytes"], 4 * 40);
  EXPECT_GT(json["seconds"]["measured"], 0);
  EXPECT_THAT(
      report.brief(),
      HasSubstr("async, 300 steps: " + std::to_string(report.measured.forwards()) + " forwards"));
  EXPECT_THAT(report.full(), HasSubstr("peak in ram"));
  EXPECT_THAT(report.full(), HasSubstr("states kept in ram:"));
}

TEST(Trace, HasEveryStepAndTransfer) {
  const Ran ran(100'000);
  const Report report = ran.run->report();
  const Json trace = Json::parse(ran.run->trace_json());
  std::int64_t advanced = 0, recorded = 0, reversed = 0, writes = 0, reads = 0;
  double last_compute = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    EXPECT_GE(event["dur"], 0);
    const std::string name = event["name"];
    if (name == "write") ++writes;
    if (name == "read") ++reads;
    if (name != "advance" && name != "record" && name != "reverse") continue;
    const std::int64_t steps =
        event["args"]["to"].get<std::int64_t>() - event["args"]["from"].get<std::int64_t>();
    (name == "advance" ? advanced : name == "record" ? recorded : reversed) += steps;
    // Compute is one lane.
    EXPECT_GE(event["ts"].get<double>(), last_compute);
    last_compute = event["ts"].get<double>() + event["dur"].get<double>() - 1e-3;
  }
  EXPECT_EQ(advanced, report.measured.advances);
  EXPECT_EQ(recorded, report.measured.records);
  EXPECT_EQ(reversed, 300);
  EXPECT_EQ(writes,
            report.measured.tiers[0].written.states + report.measured.tiers[0].written.tapes);
  EXPECT_EQ(reads, report.measured.tiers[0].read.states + report.measured.tiers[0].read.tapes);
  EXPECT_EQ(trace["otherData"]["events_left_out"], 0);
}

TEST(Trace, CountsWhatItHasNoRoomFor) {
  const Ran ran(10);
  const Json trace = Json::parse(ran.run->trace_json());
  EXPECT_GT(trace["otherData"]["events_left_out"], 100);
  EXPECT_EQ(Json::parse(Ran(0).run->trace_json())["otherData"]["events_left_out"], 0);
}

TEST(Report, ATierThatKeepsNothingIsForTimingOnlyAndSaid) {
  const auto step = small_step(300);
  RunOptions options = planned(*step, {null_tier("nothing")});
  options.strategy = "async";
  options.budget = 2000;
  options.replan_factor = 0;
  try {
    const ebb::Run run(*step, options);
    FAIL() << "it is taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("tier 'nothing' keeps nothing"));
  }
  options.timing_only = true;
  ebb::Run run(*step, options);
  results_of(run, *step);
  EXPECT_FALSE(run.report().exact);
  EXPECT_THAT(run.report().brief(), HasSubstr("NOT EXACT"));
  EXPECT_THAT(run.report().full(), HasSubstr("NOT EXACT: tier 'nothing' keeps nothing"));
  EXPECT_EQ(Json::parse(run.report().json())["exact"], false);
  options.tiers = {memory_tier(1_MiB, "nothing")};
  ebb::Run kept(*step, options);
  EXPECT_TRUE(results_of(kept, *step) == stored_all(*step));
  EXPECT_TRUE(kept.report().exact);
  EXPECT_EQ(Json::parse(kept.report().json())["exact"], true);
}

// A tier that is slower than the plan assumes is named, and the next forward plans anew.
TEST(Report, SpeedsFarFromThePlan) {
  const auto step = small_step(300);
  const Results expected = stored_all(*step);
  SlowTier tier;
  tier.name = "sleepy";
  tier.capacity = 1_MiB;
  tier.open = [](const Ledger&) { return std::make_unique<SlowMedium>(); };
  RunOptions options = planned(*step, {tier});
  options.strategy = "async";
  options.budget = 2000;
  options.replan_factor = 2;
  ebb::Run run(*step, options);
  EXPECT_TRUE(results_of(run, *step) == expected);
  ASSERT_FALSE(run.report().remarks.empty());
  EXPECT_THAT(run.report().remarks[0], HasSubstr("sleepy writes took"));
  EXPECT_TRUE(results_of(run, *step) == expected);
  EXPECT_GT(run.platform().tiers[0].write_seconds(64), 100e-6);
}

}  // namespace
}  // namespace ebb::test::report_test
