// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/message_of.h"

namespace ebb::test::options_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TEST(TrainOptions, DefaultsComeBack) {
  const TrainOptions options = options_from_json("{}", "words");
  EXPECT_EQ(to_json(options), to_json(TrainOptions{}));
  EXPECT_EQ(to_json(options_from_json(to_json(options), "words")), to_json(options));
  check_options(options);
}

// Every key with another value than its own.
TEST(TrainOptions, EveryKeyComesBack) {
  json all = json::parse(to_json(TrainOptions{}));
  for (auto& [key, value] : all.items()) {
    if (value.is_boolean()) {
      value = !value.get<bool>();
    } else if (value.is_string()) {
      value = value.get<std::string>() + "x";
    } else if (value.is_number_float()) {
      value = value.get<double>() + 0.5;
    } else {
      value = value.get<std::int64_t>() + 3;
    }
  }
  for (const char* key : {"sharpness", "gradient_threshold", "threshold", "tau_mem", "tau_syn",
                          "tau_adp", "beta", "a", "b"}) {
    EXPECT_FALSE(all.contains(key)) << key;  // left out: the cell's own
    all[key] = 0.125;
  }
  all["optimiser"] = "adamw";
  all["schedule"] = "step:10,0.5,warmup=3";
  all["weight_decay"] = 0.5;
  const TrainOptions options = options_from_json(all.dump(), "words");
  EXPECT_EQ(json::parse(to_json(options)), all);
  EXPECT_EQ(options.layer.tau_syn, 0.125);
  EXPECT_EQ(options.optimiser.kind, OptimiserKind::adamw);
  EXPECT_EQ(options.schedule.every, 10);
}

TEST(TrainOptions, AnOptimiserBringsItsOwnDefaults) {
  EXPECT_EQ(options_from_json(R"({"optimiser": "adamw"})", "words").optimiser.weight_decay, 0.01);
  EXPECT_EQ(options_from_json(R"({"optimiser": "adamw", "weight_decay": 0})", "words")
                .optimiser.weight_decay,
            0);
  EXPECT_EQ(options_from_json(R"({"optimiser": "sgd"})", "words").optimiser.weight_decay, 0);
}

TEST(TrainOptions, RefusesWhatIsNoOption) {
  const std::vector<std::pair<const char*, const char*>> table = {
      {"[]", "file: it must be a JSON object"},
      {"3", "file: it must be a JSON object"},
      {"{", "file"},
      {R"({"hiden": 3})", "file: no option 'hiden'"},
      {R"({"hidden": "3"})", "file: hidden is \"3\"; it must be a whole number"},
      {R"({"hidden": 3.5})", "file: hidden is 3.5; it must be a whole number"},
      {R"({"lr": "fast"})", "file: lr is \"fast\"; it must be a number"},
      {R"({"lr": null})", "file: lr is null; it must be a number"},
      {R"({"cell": 3})", "file: cell is 3; it must be a word"},
      {R"({"pipelined": 1})", "file: pipelined is 1; it must be true or false"},
      {R"({"tau_mem": true})", "file: tau_mem is true; it must be a number"},
      {R"({"seed": -1})", "file: seed is -1; it must be 0 to"},
      {R"({"threads": 4294967297})", "file: threads is 4294967297; it must be"},
      {R"({"steps": 18446744073709551615})", "file: steps is 18446744073709551615; it must be"},
      {R"({"optimiser": "lion"})", "lion"},
      {R"({"optimiser": 1})", "file: optimiser is 1; it must be a word"},
      {R"({"schedule": "sine"})", "sine"},
  };
  for (const auto& [text, message] : table) {
    EXPECT_THAT(message_of([text = text] { options_from_json(text, "file"); }), HasSubstr(message))
        << text;
  }
}

TEST(TrainOptions, LargeNumbersComeBack) {
  TrainOptions options;
  options.seed = 18'446'744'073'709'551'615ULL;
  EXPECT_EQ(options_from_json(to_json(options), "words").seed, options.seed);
}

TEST(TrainOptions, RefusesWhatCannotBe) {
  const std::vector<std::pair<const char*, const char*>> table = {
      {R"({"steps": -1})", "steps is -1; it must be 0 to 1000000000"},
      {R"({"batch": 0})", "batch is 0; it must be 1 to 65535"},
      {R"({"batch": 65536})", "batch is 65536; it must be 1 to 65535"},
      {R"({"layers": 0})", "layers is 0; it must be 1 to 1000"},
      {R"({"threads": -1})", "threads is -1; it must be 0 to"},
      {R"({"iterations": -5})", "iterations is -5"},
      {R"({"epochs": -5})", "epochs is -5"},
      {R"({"evaluate": -5})", "evaluate is -5"},
      {R"({"test_samples": -5})", "test_samples is -5"},
      {R"({"save_seconds": -0.5})", "save_seconds is -0.5"},
      {R"({"iterations": 1, "epochs": 1})", "iterations and epochs are both given"},
      {R"({"readout": "none"})", "readout is 'none'; it must be linear or leaky"},
      {R"({"cell": "leaky"})", "cell is 'leaky', which is a readout"},
      {R"({"dtype": "half"})",
       "dtype is 'half'; it must be float or double, or on a GPU tf32, bf16 or f16"},
      {R"({"lr": -1})", "-1"},
      {R"({"clip": -1})", "-1"},
      {R"({"strategy": "truncated:"})", "strategy is 'truncated:'; truncated takes"},
      {R"({"strategy": "truncated:0"})", "strategy is 'truncated:0'"},
      {R"({"strategy": "truncated:-3"})", "strategy is 'truncated:-3'"},
      {R"({"strategy": "truncated:10x"})", "strategy is 'truncated:10x'"},
      {R"({"budget": "0%"})", "budget is '0%'; it must be bytes such as 64MiB"},
      {R"({"budget": "-5%"})", "budget is '-5%'"},
      {R"({"budget": "nan%"})", "budget is 'nan%'"},
      {R"({"budget": "inf%"})", "budget is 'inf%'"},
      {R"({"budget": "%"})", "budget is '%'"},
      {R"({"budget": "5 %"})", "budget is '5 %'"},
      {R"({"budget": "much"})", "budget is 'much'; it must be bytes"},
      {R"({"budget": ""})", "budget is ''"},
  };
  for (const auto& [text, message] : table) {
    EXPECT_THAT(message_of([text = text] { check_options(options_from_json(text, "file")); }),
                HasSubstr(message))
        << text;
  }
}

TEST(TrainOptions, Budgets) {
  TrainOptions options;
  EXPECT_EQ(budget_bytes(options, 1000), kUnlimited);
  options.budget = "64MiB";
  EXPECT_EQ(budget_bytes(options, 1000), 64 << 20);
  options.budget = "5%";
  EXPECT_EQ(budget_bytes(options, 1000), 50);
  options.budget = "0.5%";
  EXPECT_EQ(budget_bytes(options, 1000), 5);
  options.budget = "200%";
  EXPECT_EQ(budget_bytes(options, 1000), 2000);
}

TEST(TrainOptions, Truncation) {
  TrainOptions options;
  EXPECT_EQ(truncation(options), 0);
  options.strategy = "store_all";
  EXPECT_EQ(truncation(options), 0);
  options.strategy = "truncated:100";
  EXPECT_EQ(truncation(options), 100);
}

}  // namespace
}  // namespace ebb::test::options_test
