// SPDX-License-Identifier: Apache-2.0
// `ebb eval`, `ebb predict` and `ebb sample`: words and answers; tests/train/trained_test.cpp has the
// numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/expect.h"
#include "tests/cli/run.h"
#include "tests/temporary_folder.h"

namespace ebb::test::use_command_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TEST(UseCommands, Help) {
  expect_help("eval", {"RUN", "--data", "--split", "--samples", "--batch", "--json", "Exit codes"});
  expect_help("predict", {"RUN", "-o,--out", "--every-step", "--last", "--classes", "Examples"});
  expect_help("sample", {"RUN", "--text", "--length", "--temperature", "--seed", "Examples"});
}

TEST(UseCommands, WrongWords) {
  for (const char* name : {"eval", "predict", "sample"}) {
    expect_refused(name, {{"", "RUN is required"}, {"run --bananas", "unknown word '--bananas'"}});
  }
  EXPECT_EQ(command("eval", "nothing").code, kFailure);
  EXPECT_EQ(command("predict", "nothing --data x.npy -o y.npy").code, kFailure);
  EXPECT_EQ(command("sample", "nothing").code, kFailure);
  expect_refused("eval", {{"run --split half", "test or train"}, {"run --samples 0", "--samples"}});
  expect_refused("predict", {{"run", "--data is missing"},
                             {"run --data x.npy", "--out is missing"},
                             {"run --data x --out y --last --every-step", "both"}});
  expect_refused("sample",
                 {{"run --temperature hot", "a number"}, {"run --length -1", "--length"}});
}

TEST(UseCommands, EvalSaysWhatTheTestOfTheTrainingSaid) {
  const TemporaryFolder folder;
  const std::string run = folder.path() + "/run";
  const Outcome trained =
      command("train",
              "--task copy --steps 40 --hidden 8 --batch 4 --iterations 2 --test-samples 6 "
              "--threads 1 --json --out " +
                  run);
  ASSERT_EQ(trained.code, kDone) << trained.err;
  const json last = json::parse(lines_of(trained.out).back())["test"];
  const Outcome found = command("eval", run + " --json");
  ASSERT_EQ(found.code, kDone) << found.err;
  EXPECT_EQ(json::parse(found.out)["loss"], last["loss"]);
  EXPECT_EQ(json::parse(found.out)["accuracy"], last["accuracy"]);
  EXPECT_THAT(command("eval", run).out, HasSubstr("6 samples"));
  EXPECT_THAT(command("sample", run).err, HasSubstr("only nets trained on the task 'text'"));
}

}  // namespace
}  // namespace ebb::test::use_command_test
