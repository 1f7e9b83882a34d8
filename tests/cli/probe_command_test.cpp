// SPDX-License-Identifier: Apache-2.0
// `ebb probe` end to end.
#include "ebb/cli/probe_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/expect.h"
#include "tests/cli/run.h"

namespace ebb::test::probe_command_test {
namespace {

using nlohmann::json;
using test::Outcome;
using test::TemporaryFile;
using ::testing::AllOf;
using ::testing::HasSubstr;

Outcome probe(const std::string& words) { return test::command("probe", words); }

// As small as can be.
constexpr const char* kSmall = "--state 64KiB --steps 50 --sweeps 2 ";

TEST(ProbeBudget, MayBeAShare) {
  const Outcome outcome =
      probe(std::string(kSmall) + "--budget 10% --tier ram:memory,capacity=8MiB --json");
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  const json found = json::parse(outcome.out);
  // 50 tapes of 128 KiB, and beside them the working set without a tape: three of 64 KiB.
  EXPECT_EQ(found["platform"]["fast"], (50 * 128 + 3 * 64) * 1024 / 10);
}

TEST(ProbeJson, SaysWhatWasMeasured) {
  const Outcome outcome =
      probe(std::string(kSmall) +
            "--budget 1MiB --tier ram:memory,capacity=8MiB --tier free:null --tier "
            "disk:file=/tmp,capacity=16MiB,engine=threads,direct=no --json");
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const json found = json::parse(outcome.out);
  EXPECT_EQ(found["steps"], 50);
  EXPECT_EQ(found["sweeps"], 2);
  const json& step = found["step"];
  EXPECT_EQ(step["state"], 64 << 10);
  EXPECT_EQ(step["tape"], 128 << 10);
  EXPECT_EQ(step["adjoint"], 64 << 10);
  EXPECT_EQ(step["scratch"], 64 << 10);
  for (const char* key : {"forward", "record", "backward", "call"}) EXPECT_GE(step[key], 0) << key;
  // Of the one or of the other, where the machine is busy with other things.
  EXPECT_GT(step["call"].get<double>() + step["forward"].get<double>(), 0);

  EXPECT_GT(found["platform"]["copy"], 0);
  ASSERT_EQ(found["tiers"].size(), 3U);
  for (const json& tier : found["tiers"]) {
    for (const char* key : {"write", "read"}) {
      EXPECT_TRUE(tier[key].is_null() || tier[key] > 0) << tier;
    }
    for (const char* key : {"write_state", "read_state"}) EXPECT_GT(tier[key], 0) << tier;
    EXPECT_GE(tier["write_latency"], 0);
    EXPECT_GE(tier["read_latency"], 0);
    EXPECT_TRUE(tier["duplex"].is_boolean());
  }
  EXPECT_EQ(found["tiers"][0]["kind"], "memory");
  EXPECT_EQ(found["tiers"][0]["capacity"], 8 << 20);
  EXPECT_EQ(found["tiers"][1]["kind"], "null");
  EXPECT_EQ(found["tiers"][1]["capacity"], nullptr);
  const json& disk = found["tiers"][2];
  EXPECT_EQ(disk["kind"], "file");
  EXPECT_EQ(disk["directory"], "/tmp");
  EXPECT_EQ(disk["engine"], "threads");
  EXPECT_EQ(disk["direct"], false);
  EXPECT_EQ(found["platform"]["fast"], 1 << 20);
  EXPECT_EQ(found["platform"]["tiers"][2]["name"], "disk");
  EXPECT_EQ(found["chain"]["repeat"], 50);
}

TEST(ProbeFiles, AreWhatPlanReads) {
  const TemporaryFile chain("chain.json", ""), platform("platform.json", "");
  const Outcome outcome =
      probe(std::string(kSmall) + "--budget 1MiB --tier ram:memory,capacity=8MiB --chain-out " +
            chain.path() + " --platform-out " + platform.path());
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  const Outcome planned = test::plan("--chain " + chain.path() + " --platform " + platform.path() +
                                     " --strategy async --json");
  ASSERT_EQ(planned.code, kDone) << planned.err;
  const json plan = json::parse(planned.out);
  EXPECT_EQ(plan["steps"], 50);
  EXPECT_GT(plan["seconds"], 0);
  EXPECT_LE(plan["peak"]["fast"], 1 << 20);
  EXPECT_TRUE(plan["peak"].contains("ram"));
}

TEST(ProbeText, NamesEveryFigure) {
  const Outcome outcome = probe(
      std::string(kSmall) +
      "--tier ram:memory,capacity=8MiB --tier free:null --tier disk:file=/tmp,engine=threads");
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  for (const char* text :
       {"64 KiB of floats, 2 sweeps; 50 steps", "forward", "record", "backward", "call",
        "state 64 KiB, tape 128 KiB, adjoint 64 KiB, scratch 64 KiB", "Tier ram: host memory",
        "Tier free: keeps nothing", "Tier disk: a file in /tmp; threads", ", latency", "duplex",
        "capacity      8 MiB", "capacity      no limit", "/s within fast memory", "copied in",
        "written in", "read in"}) {
    EXPECT_THAT(outcome.out, HasSubstr(text));
  }
  test::expect_fits_a_terminal(outcome.out);
}

TEST(ProbeDefaults, JustWork) {
  const Outcome outcome = probe("--json --state 256KiB");
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  const json found = json::parse(outcome.out);
  EXPECT_EQ(found["steps"], 1000);
  EXPECT_EQ(found["sweeps"], 8);
  ASSERT_EQ(found["tiers"].size(), 2U);
  EXPECT_EQ(found["tiers"][0]["name"], "ram");
  EXPECT_EQ(found["tiers"][1]["name"], "disk");
  EXPECT_GT(found["tiers"][1]["capacity"], 0);
}

TEST(ProbeRefuses, WrongWords) {
  test::expect_refused(
      "probe",
      {
          {"--state 0", "--state is '0'; it must be from 64 to"},
          {"--state many", "--state is 'many'"},
          {"--steps 0", "--steps is '0'"},
          {"--sweeps 0", "--sweeps is '0'"},
          {"--budget -1", "--budget is '-1'"},
          {"--tier ram", "--tier ram: say what it is, one of "},
          {"--tier ram:memory,null", "say what it is"},
          {"--tier ram:memory=3", "cannot read 'memory=3'"},
          {"--tier disk:file", "cannot read 'file'"},
          {"--tier disk:file=", "file is ''; name a directory"},
          {"--tier disk:file=/tmp,write=3", "write is not given here: it is measured"},
          {"--tier disk:file=/tmp,slots=3", "slots counts states; give capacity=BYTES"},
          {"--tier disk:file=/tmp,engine=steam",
           "engine is 'steam'; it must be uring, threads or any"},
          {"--tier disk:file=/tmp,direct=maybe", "direct is 'maybe'; it must be yes or no"},
          {"--tier ram:memory,direct=no", "direct is for file=DIRECTORY"},
          {"--tier ram:memory,size=3", "cannot read 'size=3'; write "},
          {"--tier a:null --tier a:null", "a"},
          {"--stat 3", "did you mean --state?"},
          {"--sweps 3", "did you mean --sweeps?"},
      });
}

TEST(ProbeFails, WhereFilesCannotBe) {
  const Outcome missing = probe(std::string(kSmall) + "--tier disk:file=/no/such/place");
  EXPECT_EQ(missing.code, kFailure);
  EXPECT_THAT(missing.err, AllOf(HasSubstr("/no/such/place"), HasSubstr("ebb probe: ")));
  EXPECT_EQ(test::lines_of(missing.err).size(), 1U);
  const Outcome unwritable =
      probe(std::string(kSmall) + "--tier free:null --chain-out /no/such/place/chain.json");
  EXPECT_EQ(unwritable.code, kFailure);
  EXPECT_THAT(unwritable.err, HasSubstr("--chain-out: the file '/no/such/place/chain.json'"));
}

TEST(PlanRefuses, TiersOfThisMachine) {
  for (const char* tier : {"disk:file=/tmp", "ram:memory", "free:null", "disk:engine=uring"}) {
    const Outcome outcome = test::plan(std::string("--steps 3 --tier ") + tier);
    EXPECT_EQ(outcome.code, kBadUsage);
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("is for tiers of this machine"),
                                   HasSubstr("ebb probe --platform-out FILE")));
  }
}

TEST(ProbeHelp, NamesEveryOptionAndFitsATerminal) {
  test::expect_help("probe", {"--state", "--steps", "--sweeps", "--budget", "--tier", "--json",
                              "--chain-out", "--platform-out", "Examples", "Exit codes"});
}

}  // namespace
}  // namespace ebb::test::probe_command_test
