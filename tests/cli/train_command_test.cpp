// SPDX-License-Identifier: Apache-2.0
// `ebb train` in the test's own process; tests/python/test_train.py runs the program.
#include "ebb/cli/train_command.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "ebb/data/task.h"
#include "ebb/device/device_memory.h"
#include "ebb/store/file.h"
#include "ebb/train/options.h"
#include "ebb/train/run_lock.h"
#include "tests/cli/run.h"
#include "tests/temporary_folder.h"

namespace ebb::test::train_command_test {
namespace {

using nlohmann::json;
using test::lines_of;
using test::Outcome;
using test::TemporaryFile;
using ::testing::HasSubstr;

Outcome train(const std::string& words) { return test::command("train", words); }

constexpr const char* kSmall =
    "--steps 30 --hidden 5 --batch 2 --iterations 2 --test-samples 3 --threads 1 ";

TEST(TrainHelp, ListsEveryOption) {
  const Outcome help = train("--help");
  ASSERT_EQ(help.code, kDone);
  // Keys that only configuration files have.
  const std::vector<std::string> hidden = {"bias",    "recurrent", "normalised",  "rest",
                                           "a",       "b",         "beta1",       "beta2",
                                           "epsilon", "processes", "device_chunk"};
  json keys = json::parse(to_json(TrainOptions{}));
  for (const char* key : {"steps", "iterations", "epochs", "sharpness", "gradient_threshold",
                          "threshold", "tau_mem", "tau_syn", "tau_adp", "beta"}) {
    keys[key] = 0;
  }
  for (const auto& [key, value] : keys.items()) {
    std::string option = "--" + key;
    std::replace(option.begin(), option.end(), '_', '-');
    const bool is_hidden = std::find(hidden.begin(), hidden.end(), key) != hidden.end();
    EXPECT_EQ(help.out.find("  " + option + " ") != std::string::npos, !is_hidden) << option;
  }
  for (const char* option :
       {"--tier", "--plan-only", "--find-budget", "--config", "--out", "--resume",
        "--data-changed-ok", "--save-failure-ok", "--patience", "--json"}) {
    EXPECT_THAT(help.out, HasSubstr(std::string("  ") + option + " "));
  }
}

TEST(TrainWords, AChunkMayBeCalledByItsOldName) {
  const auto chunk = [](const Outcome& outcome) {
    EXPECT_EQ(outcome.code, kDone) << outcome.err;
    return json::parse(lines_of(outcome.out).at(0)).at("chunk").get<int>();
  };
  const std::string small = std::string("--task adding --json ") + kSmall;
  const Outcome now = train(small + "--chunk 3");
  EXPECT_EQ(chunk(now), 3);
  EXPECT_EQ(now.err, "");
  const Outcome old = train(small + "--grain=3");
  EXPECT_EQ(chunk(old), 3);
  EXPECT_EQ(old.err, "ebb: --grain is called --chunk now\n");
  const TemporaryFile file("old.json", R"({"grain": 3})");
  const Outcome configured = train(small + "--config " + file.path());
  EXPECT_EQ(chunk(configured), 3);
  EXPECT_THAT(configured.err, HasSubstr("grain is called chunk now"));
  EXPECT_EQ(chunk(train(small + "--chunk 2 --config " + file.path())), 2);
}

TEST(TrainHelp, ListsEveryTaskCellAndSurrogate) {
  const Outcome help = train("--help");
  for (const TaskRow& row : tasks()) EXPECT_THAT(help.out, HasSubstr(row.name + ": "));
  for (const SurrogateRow& row : surrogates()) EXPECT_THAT(help.out, HasSubstr(row.name + ": "));
  for (const CellRow& row : cells()) {
    EXPECT_EQ(help.out.find(row.name + ": " + row.what.substr(0, 10)) != std::string::npos,
              !row.is_readout)
        << row.name;
  }
}

TEST(TrainWords, WhatCannotBeIsSaid) {
  const std::vector<std::pair<const char*, const char*>> table = {
      {"--cell lstn", "no cell 'lstn'"},
      {"--lr 1e-3x", "--lr is '1e-3x'; it must be a number"},
      {"--lr inf", "--lr is 'inf'; it must be a number"},
      {"--hidden 2.5", "--hidden is '2.5'"},
      {"--seed -1", "--seed"},
      {"--iterations 1 --epochs 1", "iterations and epochs are both given"},
      {"--budget 5%%", "budget is '5%%'"},
      {"--strategy truncated:x", "strategy is 'truncated:x'"},
      {"--strategy revolv", "revolv"},
      {"--tier disk", "disk"},
      {"--resume x --config y", "leave out --config"},
      {"--config .", "--config: '.' is a directory; give a JSON file"},
      {"--resume x --out y", "leave out --out"},
      {"--lr 1 --lr 2", "--lr"},
      {"--steps 30 --hidden 5 --budget 60% --tier x:null", "tier 'x' keeps nothing"},
      {"--steps 0", "--steps is '0'"},
      {"--iterations 0", "--iterations is '0'"},
      {"--epochs 0", "--epochs is '0'"},
      {"--data-changed-ok", "--data-changed-ok is for --resume"},
      {"--save-failure-ok", "say where with --out"},
      {"--find-budget 0.9x", "--find-budget is '0.9x'; it must be 1 or more times"},
      {"--find-budget x", "--find-budget is 'x'"},
      {"--find-budget nan", "--find-budget is 'nan'"},
      {"--find-budget 1.2y", "--find-budget is '1.2y'"},
      {"--device gpu", "device is 'gpu'; it must be cpu, cuda, cuda:N"},
      {"--device cuda:-1", "device is 'cuda:-1'"},
      {"--device cuda:1x", "device is 'cuda:1x'"},
      {"--dtype bf16", "dtype is bf16, which only a GPU computes with"},
      {"--dtype half", "dtype is 'half'; it must be float or double, or on a GPU"},
      {"--host-budget 1GiB", "host_budget is 1GiB, but the net is trained on the cpu"},
      {"--host-budget 1GB%", "host_budget is '1GB%'"},
      {"--host-budget 50%", "host_budget is 50%, but the net is trained on the cpu"},
      {"--device cuda --hidden 100",
       "layer 0 has 100 units; on a device units that read each other must be a multiple of 16 in "
       "f32"},
      {"--device cuda --hidden 48 --dtype bf16 --plan-only", "must be a multiple of 32 in bf16"},
      {"--device cuda --dropout 0.1", "dropout is set, which a GPU does not run"},
      {"--device cuda --pipelined", "pipelined is set, which a GPU does not run"},
      {"--device cuda --dtype double", "dtype is double, and device is cuda"},
      {"--device cuda --tier ram:memory", "give host_budget instead"},
      {"--device cuda --cell lif --synaptic", "has synaptic currents, which a device"},
      {"--find-budget 1.2x --budget 5%", "--find-budget and --budget contradict each other"},
  };
  for (const auto& [words, message] : table) {
    const Outcome outcome = train(words);
    EXPECT_EQ(outcome.code, kBadUsage) << words;
    EXPECT_THAT(outcome.err, HasSubstr(message)) << words;
    EXPECT_EQ(outcome.out, "") << words;
  }
}

TEST(TrainWords, WinOverTheFile) {
  const TemporaryFile config("config.json",
                             R"({"task": "copy", "cell": "gru", "hidden": 3, "epochs": 9})");
  const Outcome outcome = train(std::string(kSmall) + "--json --config " + config.path());
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  const json plan = json::parse(lines_of(outcome.out).at(0));
  EXPECT_EQ(plan["cell"], "gru");
  EXPECT_EQ(plan["task"], "copy");
  EXPECT_EQ(plan["iterations"], 2);
  const Outcome words = train(std::string(kSmall) + "--json --task copy --cell gru");
  EXPECT_EQ(json::parse(lines_of(words.out).at(0))["parameters"], plan["parameters"]);
  EXPECT_EQ(json::parse(lines_of(words.out).at(2))["loss"],
            json::parse(lines_of(outcome.out).at(2))["loss"]);
}

TEST(TrainJson, OneObjectALine) {
  const Outcome outcome = train(std::string(kSmall) + "--json --budget 200% --tier ram:memory");
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  std::vector<std::string> events;
  for (const std::string& line : lines_of(outcome.out)) {
    events.push_back(json::parse(line)["event"]);
  }
  EXPECT_THAT(events, ::testing::ElementsAre("plan", "train", "train", "test", "done"));
  const json plan = json::parse(lines_of(outcome.out).at(0));
  EXPECT_EQ(plan["budget"].get<double>(), 2 * plan["plain"].get<double>());
  EXPECT_EQ(plan["exact"], true);
  ASSERT_EQ(plan["tiers"].size(), 1);
  EXPECT_EQ(plan["tiers"][0]["name"], "ram");
}

TEST(TrainText, SaysWhatItDoesAndDid) {
  const Outcome exact = train(kSmall);
  ASSERT_EQ(exact.code, kDone) << exact.err;
  EXPECT_THAT(exact.out, HasSubstr("exact, the same bits as keeping everything"));
  EXPECT_THAT(exact.out, HasSubstr("Done: 2 iterations"));
  const Outcome cut = train(std::string(kSmall) + "--strategy truncated:5");
  EXPECT_THAT(cut.out, HasSubstr("NOT EXACT: cut off every 5 time steps"));
}

TEST(TrainFit, TheLeastBudgetIsNamed) {
  const Outcome outcome = train(std::string(kSmall) + "--budget 100");
  EXPECT_EQ(outcome.code, kDoesNotFit);
  EXPECT_THAT(outcome.err, HasSubstr("it needs at least "));
}

// The number after a word in a message.
double number_after(const std::string& text, const std::string& word) {
  const std::size_t at = text.find(word);
  EXPECT_NE(at, std::string::npos) << word << " in " << text;
  return at == std::string::npos ? 0 : std::stod(text.substr(at + word.size()));
}

TEST(TrainFit, InTheUnitThatWasUsed) {
  const Outcome share = train(std::string(kSmall) + "--budget 0.1%");
  EXPECT_EQ(share.code, kDoesNotFit);
  const double percent = number_after(share.err, "takes it needs at least ");
  std::ostringstream word;
  word << percent << '%';
  EXPECT_EQ(train(std::string(kSmall) + "--plan-only --budget " + word.str()).code, kDone)
      << word.str();
  const Outcome bare = train(std::string(kSmall) + "--budget 50");
  EXPECT_EQ(bare.code, kDoesNotFit);
  EXPECT_THAT(bare.err, HasSubstr("did you mean 50% of what keeping everything takes?"));
  EXPECT_EQ(train(std::string(kSmall) + "--budget 100B").err.find("did you mean"),
            std::string::npos);
}

TEST(TrainPlanOnly, SaysThePlanAndLeavesNothing) {
  const test::TemporaryFolder folder;
  const std::string out = folder.path() + "/run";
  const Outcome text = train(std::string(kSmall) + "--plan-only --budget 200% --out " + out);
  ASSERT_EQ(text.code, kDone) << text.err;
  EXPECT_THAT(text.out, HasSubstr("It fits in "));
  EXPECT_THAT(text.out, HasSubstr(" x keeping everything"));
  EXPECT_THAT(text.out, HasSubstr(" beside: "));
  EXPECT_EQ(text.out.find("Done"), std::string::npos);
  EXPECT_TRUE(folder.empty());
  const Outcome answer = train(std::string(kSmall) + "--plan-only --json --out " + out);
  ASSERT_EQ(lines_of(answer.out).size(), 1U);
  const json plan = json::parse(answer.out);
  EXPECT_EQ(plan["event"], "plan");
  EXPECT_EQ(plan["fits"], true);
  EXPECT_TRUE(folder.empty());
}

TEST(TrainPlanOnly, SaysThatItDoesNotFit) {
  const Outcome outcome = train(std::string(kSmall) + "--plan-only --json --budget 100B");
  EXPECT_EQ(outcome.code, kDoesNotFit);
  const json plan = json::parse(outcome.out);
  EXPECT_EQ(plan["fits"], false);
  EXPECT_THAT(outcome.err, HasSubstr(std::to_string(plan["least_budget"].get<int>())));
  EXPECT_EQ(train(std::string(kSmall) + "--plan-only --budget 100B").out, "");
}

TEST(TrainPlanOnly, OfACheckpoint) {
  const test::TemporaryFolder folder;
  ASSERT_EQ(train(std::string(kSmall) + "--out " + folder.path()).code, kDone);
  std::map<std::string, std::filesystem::file_time_type> before;
  for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
    before[file.path().string()] = file.last_write_time();
  }
  const Outcome outcome = train("--resume " + folder.path() + " --iterations 5 --plan-only --json");
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out)["resumed_at"], 2);
  EXPECT_EQ(json::parse(outcome.out)["iterations"], 5);
  for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
    EXPECT_EQ(before.at(file.path().string()), file.last_write_time()) << file.path();
  }
}

const std::string kOnDevice = "--device cuda --dtype bf16 --hidden 64 --batch 4 ";

TEST(TrainDevice, IsPlannedWithoutOne) {
  const Outcome outcome =
      train(kOnDevice + "--steps 300 --budget 20% --host-budget 1MiB --plan-only --json");
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  const json plan = json::parse(outcome.out);
  EXPECT_EQ(plan["device"], "cuda");
  EXPECT_LE(plan["peak"].get<std::int64_t>(), plan["budget"].get<std::int64_t>());
  EXPECT_EQ(plan["tiers"][0]["name"], "host");
  EXPECT_THAT(train(kOnDevice + "--plan-only").out, HasSubstr("cuda, in bf16"));
  const Outcome least = train(kOnDevice + "--steps 300 --plan-only --json --budget 100B");
  EXPECT_EQ(least.code, kDoesNotFit);
  EXPECT_GT(json::parse(least.out)["least_budget"].get<std::int64_t>(), 100);
}

TEST(TrainDevice, FindsTheLeastBudget) {
  const Outcome outcome = train(kOnDevice + "--steps 600 --find-budget 1.4x --json");
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  const json plan = json::parse(outcome.out);
  EXPECT_LE(plan["seconds"].get<double>(), 1.4 * plan["plain_seconds"].get<double>());
  EXPECT_LT(plan["budget"].get<std::int64_t>(), plan["plain"].get<std::int64_t>());
  const std::string budget = std::to_string(plan["budget"].get<std::int64_t>());
  const Outcome planned = train(kOnDevice + "--steps 600 --plan-only --json --budget " + budget);
  EXPECT_EQ(json::parse(planned.out)["seconds"], plan["seconds"]);
}

TEST(TrainDevice, WhereThereIsNone) {
  if (cuda_missing().empty()) GTEST_SKIP() << "there is one";
  const Outcome refused = train(kOnDevice + "--steps 30 --iterations 2");
  EXPECT_NE(refused.code, kDone);
  EXPECT_THAT(refused.err, HasSubstr("give device cpu to train without one"));
  const Outcome found = train(kSmall + std::string("--device auto --json"));
  ASSERT_EQ(found.code, kDone) << found.err;
  EXPECT_EQ(json::parse(lines_of(found.out).at(0))["device"], "cpu");
}

// How little memory it finds depends on the times that it measures; LeastWithin of the plan room has
// that with given ones.
TEST(TrainFindBudget, ItsBudgetFits) {
  const std::string net = "--steps 400 --chunk 4 --hidden 8 --batch 2 --threads 1 ";
  const Outcome outcome = train(net + "--find-budget 1.3x --json");
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  ASSERT_EQ(lines_of(outcome.out).size(), 1U);
  const json plan = json::parse(outcome.out);
  EXPECT_EQ(plan["fits"], true);
  EXPECT_GT(plan["seconds"].get<double>(), 0);
  EXPECT_LE(plan["peak"].get<std::int64_t>(), plan["budget"].get<std::int64_t>());
  const Outcome all = train(net + "--strategy store_all --plan-only --json");
  EXPECT_LE(plan["budget"].get<std::int64_t>(), json::parse(all.out)["peak"].get<std::int64_t>());
  EXPECT_EQ(plan["budget_share"].get<double>(),
            plan["budget"].get<double>() / plan["plain"].get<double>());
  const std::string budget = std::to_string(plan["budget"].get<std::int64_t>());
  EXPECT_EQ(train(net + "--plan-only --budget " + budget).code, kDone);
  const Outcome text = train(net + "--find-budget 1.3");
  EXPECT_THAT(text.out, HasSubstr("At most 1.3 x the time of keeping everything: --budget "));
  EXPECT_THAT(text.out, HasSubstr("% of what that takes."));
}

TEST(TrainFindBudget, NoBudgetMakesItThatFast) {
  const Outcome outcome = train(
      "--steps 400 --chunk 4 --hidden 8 --batch 2 --threads 1 --strategy sqrt --find-budget 1");
  EXPECT_EQ(outcome.code, kDoesNotFit);
  EXPECT_THAT(outcome.err, HasSubstr("no budget makes strategy sqrt as fast as 1 x"));
}

TEST(TrainFiles, NoStepsAndNoIterationsAreRefused) {
  for (const char* key : {"steps", "iterations", "epochs"}) {
    const TemporaryFile config("config.json", std::string("{\"") + key + "\": 0}");
    const Outcome outcome = train("--config " + config.path());
    EXPECT_EQ(outcome.code, kBadUsage) << key;
    EXPECT_THAT(outcome.err, HasSubstr(std::string(key) + " is 0; it must be 1 or more"));
  }
}

TEST(TrainFiles, MissingOnes) {
  const Outcome config = train("--config nowhere/at_all.json");
  EXPECT_EQ(config.code, kFailure);
  EXPECT_THAT(config.err, HasSubstr("--config: cannot read 'nowhere/at_all.json'"));
  const Outcome data = train("--task npy --data nowhere");
  EXPECT_EQ(data.code, kFailure);
  EXPECT_THAT(data.err, HasSubstr("there is no file nowhere/x_train.npy"));
}

std::map<std::string, int> opened;  // by name
int (*open_uncounted)(const char*, int, mode_t) = nullptr;

int open_counted(const char* path, int flags, mode_t mode) {
  if ((flags & O_ACCMODE) == O_RDONLY) ++opened[std::filesystem::path(path).filename().string()];
  return open_uncounted(path, flags, mode);
}

TEST(TrainFiles, ADirectoryInUseIsLeftAlone) {
  const test::TemporaryFolder folder;
  std::optional<RunLock> lock(folder.path());
  for (const std::string& words : {kSmall + std::string("--out "), std::string("--resume ")}) {
    const Outcome second = train(words + folder.path());
    EXPECT_EQ(second.code, kFailure) << words;
    EXPECT_THAT(second.err, HasSubstr("is in use by process ")) << words;
    EXPECT_EQ(second.out, "") << words;
  }
  lock.reset();
  EXPECT_EQ(train(kSmall + ("--out " + folder.path())).code, kDone);
  lock.emplace(folder.path());
  EXPECT_THAT(train(kSmall + ("--out " + folder.path())).err, HasSubstr("is in use by process "));
  EXPECT_THAT(train("--resume " + folder.path()).err, HasSubstr("is in use by process "));
  lock.reset();
  EXPECT_EQ(train("--resume " + folder.path()).code, kDone);
  EXPECT_THAT(train(kSmall + ("--out " + folder.path())).err,
              HasSubstr("holds a checkpoint already"));
}

TEST(TrainFiles, ResumeReadsTheCheckpointOnce) {
  const test::TemporaryFolder folder;
  ASSERT_EQ(train(std::string(kSmall) + "--out " + folder.path()).code, kDone);
  opened.clear();
  const FileCalls real = file_calls();
  open_uncounted = real.open;
  file_calls().open = open_counted;
  const Outcome outcome = train("--resume " + folder.path());  // all iterations are done
  file_calls() = real;
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_EQ(opened["train.json"], 1);
  EXPECT_EQ(opened["model-1.safetensors"], 1);
  EXPECT_EQ(opened["optimiser-1.safetensors"], 1);
}

}  // namespace
}  // namespace ebb::test::train_command_test
