// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/cli.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "ebb/core/version.h"
#include "tests/cli/run.h"

namespace ebb::test::cli_test {
namespace {

using test::Outcome;
using test::run;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Cli, SaysItsVersion) {
  const Outcome outcome = run({"--version"});
  EXPECT_EQ(outcome.code, kDone);
  EXPECT_EQ(outcome.out, std::string("ebb ") + version() + "\n");
  EXPECT_EQ(outcome.err, "");
}

TEST(Cli, HelpsOnStandardOutput) {
  for (const char* word : {"--help", "-h"}) {
    const Outcome outcome = run({word});
    EXPECT_EQ(outcome.code, kDone);
    EXPECT_THAT(outcome.out, AllOf(HasSubstr("Usage: ebb"), HasSubstr("plan")));
    EXPECT_EQ(outcome.err, "");
  }
}

TEST(Cli, HelpOfPlanNamesEveryOptionAndShowsExamples) {
  const Outcome outcome = run({"plan", "--help"});
  EXPECT_EQ(outcome.code, kDone);
  for (const char* option :
       {"--steps",   "--strategy",   "--slots",    "--budget",   "--working",
        "--forward", "--record",     "--backward", "--state",    "--tape",
        "--chain",   "--platform",   "--interval", "--period",   "--tier",
        "--sync",    "--json",       "--actions",  "--format",   "--sweep",
        "--largest", "--strategies", "Examples",   "Exit codes", "ipu-mk2-tile"}) {
    EXPECT_THAT(outcome.out, HasSubstr(option));
  }
}

TEST(Cli, NeedsACommand) {
  const Outcome nothing = run({});
  EXPECT_EQ(nothing.code, kBadUsage);
  EXPECT_EQ(nothing.out, "");
  EXPECT_THAT(nothing.err, HasSubstr("say what to do"));
  EXPECT_THAT(run({"plna"}).err,
              AllOf(HasSubstr("unknown word 'plna'"), HasSubstr("did you mean plan?")));
  EXPECT_EQ(run({"plna"}).code, kBadUsage);
  EXPECT_EQ(run({"--bananas"}).code, kBadUsage);
}

TEST(Cli, NoticesAnOutputThatCannotBeWritten) {
  std::ostringstream out, err;
  out.setstate(std::ios::badbit);
  const std::vector<std::string> args = {"plan", "--steps", "3"};
  EXPECT_EQ(run_cli(args, out, err), kFailure);
  EXPECT_THAT(err.str(), HasSubstr("cannot be written"));
}

TEST(Cli, ShowsNoControlCharactersAndNoEndlessWords) {
  const Outcome outcome = run({"plan", "--steps", "\x1b[31m" + std::string(100'000, 'x')});
  EXPECT_EQ(outcome.code, kBadUsage);
  EXPECT_LT(outcome.err.size(), 300U);
  EXPECT_EQ(outcome.err.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace ebb::test::cli_test
