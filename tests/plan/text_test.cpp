// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ebb/plan/tier_words.h"
#include "tests/message_of.h"

namespace ebb::test::text_test {
namespace {

using test::message_of;
using ::testing::HasSubstr;

std::string chain_message(const char* text) {
  return message_of([text] { chain_from_json(text); });
}

std::string platform_message(const char* text) {
  return message_of([text] { platform_from_json(text); });
}

TEST(ChainText, FillsInWhatIsLeftOut) {
  const Chain chain = chain_from_json(R"({"repeat":5,"step":{"forward":3,"state":"2KiB"}})");
  EXPECT_EQ(chain.steps(), 5);
  EXPECT_EQ(chain.call(), 0);
  EXPECT_EQ(chain.at(0), (StepCost{3, 3, 6, 2048, 2048, 2048, 0}));
  EXPECT_EQ(chain_from_json(R"({"steps":[{}]})").at(0), (StepCost{1, 1, 2, 1, 1, 1, 0}));
  EXPECT_EQ(chain_from_json(R"({"steps":[]})").steps(), 0);
  EXPECT_EQ(chain_from_json(R"({"repeat":1e12,"step":{}})").steps(), 1'000'000'000'000);
}

TEST(ChainText, ReadsStepsThatDiffer) {
  const Chain chain = chain_from_json(
      R"({"call":0.5,"steps":[{"forward":1,"record":2,"backward":3,"state":4,"tape":5,"adjoint":6,"scratch":7},{}]})");
  EXPECT_FALSE(chain.is_uniform());
  EXPECT_EQ(chain.call(), 0.5);
  EXPECT_EQ(chain.at(0), (StepCost{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(chain.at(1), (StepCost{1, 1, 2, 1, 1, 1, 0}));
}

TEST(ChainText, ReadsBackWhatItWrites) {
  const Chain uniform = Chain::uniform(1'000'000'000, {0.1, 1e-9, 1.0 / 3, 5, 6, 7, 8}, 1e-5);
  const Chain same = chain_from_json(to_json(uniform));
  EXPECT_TRUE(same.is_uniform());
  EXPECT_EQ(same.steps(), uniform.steps());
  EXPECT_EQ(same.at(0), uniform.at(0));
  EXPECT_EQ(same.call(), uniform.call());

  const std::vector<StepCost> steps = {
      {0.1, 0.2, 0.3, 1, 2, 3, 4}, {5, 6, 7, Bytes{1} << 61, 9, 0, 0}, {}};
  const Chain each = chain_from_json(to_json(Chain::of(steps, 2)));
  ASSERT_EQ(each.steps(), 3);
  for (std::size_t i = 0; i < steps.size(); ++i)
    EXPECT_EQ(each.at(static_cast<std::int64_t>(i)), steps[i]);
}

TEST(ChainText, SaysWhatIsWrongAndWhere) {
  EXPECT_THAT(chain_message("{"), HasSubstr("chain: not valid JSON"));
  EXPECT_THAT(chain_message("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(chain_message("{}"), HasSubstr("either \"steps\""));
  EXPECT_THAT(chain_message(R"({"repeat":3})"), HasSubstr("either \"steps\""));
  EXPECT_THAT(chain_message(R"({"step":{}})"), HasSubstr("either \"steps\""));
  EXPECT_THAT(chain_message(R"({"steps":[],"repeat":3,"step":{}})"), HasSubstr("either \"steps\""));
  EXPECT_THAT(chain_message(R"({"steps":[],"step":{}})"), HasSubstr("either \"steps\""));
  EXPECT_THAT(chain_message(R"({"steps":{}})"), HasSubstr("chain: steps must be an array"));
  EXPECT_THAT(chain_message(R"({"steps":[{},{"tapes":1}]})"),
              HasSubstr("chain: steps[1]: unknown key \"tapes\""));
  EXPECT_THAT(chain_message(R"({"steps":[{},{"tape":"1 bit"}]})"),
              HasSubstr("chain: steps[1].tape is \"1 bit\""));
  EXPECT_THAT(chain_message(R"({"steps":[{},3]})"),
              HasSubstr("chain: steps[1]: expected an object"));
  EXPECT_THAT(chain_message(R"({"steps":[{},{"forward":-1}]})"),
              HasSubstr("forward of step 1 is -1"));
  EXPECT_THAT(chain_message(R"({"repeat":-1,"step":{}})"), HasSubstr("-1 steps"));
  EXPECT_THAT(chain_message(R"({"repeat":9223372036854775808,"step":{}})"),
              HasSubstr("chain: repeat is"));
  EXPECT_THAT(chain_message(R"({"repeat":1.5,"step":{}})"), HasSubstr("whole number"));
  EXPECT_THAT(chain_message(R"({"repeat":2,"step":{"state":0}})"), HasSubstr("state is 0 bytes"));
  EXPECT_THAT(chain_message(R"({"repeat":2,"step":{"forward":"1"}})"),
              HasSubstr("chain: step: forward is \"1\""));
  EXPECT_THAT(chain_message(R"({"repeat":2,"step":{},"call":1e300})"), HasSubstr("call"));
}

TEST(PlatformText, ReadsAllOfIt) {
  const Platform platform = platform_from_json(
      R"({"name":"box","note":"from a data sheet","fast":"1MiB","copy":"4GB/s","tiers":[
      {"name":"host","capacity":4096,"write":0.5,"read":"2kB/s","latency":0.25,"duplex":false},
      {"name":"disk","write_latency":1,"read_latency":2}]})");
  EXPECT_EQ(platform.name, "box");
  EXPECT_EQ(platform.fast, 1_MiB);
  EXPECT_EQ(platform.copy_rate, 4e9);
  ASSERT_EQ(platform.tiers.size(), 2U);
  EXPECT_EQ(platform.tiers[0], (Tier{"host", 4096, 0.5, 2000, 0.25, 0.25, false}));
  EXPECT_EQ(platform.tiers[1].capacity, kUnlimited);
  EXPECT_TRUE(std::isinf(platform.tiers[1].write_rate));
  EXPECT_EQ(platform.tiers[1].write_latency, 1);
  EXPECT_EQ(platform.tiers[1].read_latency, 2);
  EXPECT_TRUE(platform.tiers[1].duplex);
  EXPECT_EQ(platform_from_json("{}"), Platform{});
}

TEST(PlatformText, ReadsBackWhatItWrites) {
  Platform platform{
      "box", 12345, {{"a", 1, 0.1, 2.5e9, 1e-7, 3, false}, {"b.c", kUnlimited, 7, 8, 0, 0, true}}};
  platform.copy_rate = 3.25e9;
  EXPECT_EQ(platform_from_json(to_json(platform)), platform);
  platform = Platform{"", kUnlimited, {Tier{.name = "free"}}};
  EXPECT_EQ(platform_from_json(to_json(platform)), platform);
}

TEST(PlatformText, SaysWhatIsWrongAndWhere) {
  EXPECT_THAT(platform_message(R"({"slow":1})"), HasSubstr("platform: unknown key \"slow\""));
  EXPECT_THAT(platform_message(R"({"note":1})"), HasSubstr("platform: note is 1"));
  EXPECT_THAT(platform_message(R"({"fast":-1})"), HasSubstr("platform: fast is -1"));
  EXPECT_THAT(platform_message(R"({"copy":0})"), HasSubstr("platform: copy is 0"));
  EXPECT_THAT(platform_message(R"({"tiers":[{}]})"),
              HasSubstr("platform: tiers[0]: the key \"name\" is missing"));
  EXPECT_THAT(platform_message(R"({"tiers":[{"name":"a"},{"name":"b","write":0}]})"),
              HasSubstr("platform: tiers[1].write is 0"));
  EXPECT_THAT(platform_message(R"({"tiers":[{"name":"a","latency":1,"read_latency":1}]})"),
              HasSubstr("both directions"));
  EXPECT_THAT(platform_message(R"({"tiers":[{"name":"a","latency":-1}]})"),
              HasSubstr("latency is -1"));
  EXPECT_THAT(platform_message(R"({"tiers":[{"name":"a"},{"name":"a"}]})"),
              HasSubstr("two tiers are named 'a'"));
  EXPECT_THAT(platform_message(R"({"tiers":[{"name":"fast"}]})"),
              HasSubstr("platform: tier 0 is named 'fast'"));
  EXPECT_THAT(platform_message(R"({"tiers":[{"name":"a","duplex":"no"}]})"),
              HasSubstr("true or false"));
}

// A name stands in commands and pages: what --tier refuses no file may bring in.
TEST(PlatformText, TakesOnlyNamesThatACommandLineTakes) {
  for (const std::string name : {"", "work", "2nd", "my disk", "ssd;curl evil|sh", "</script>"}) {
    const std::string named = R"({"tiers":[{"name":"disk"},{"name":")" + name + R"("}]})";
    EXPECT_THAT(platform_message(named.c_str()),
                HasSubstr("platform: tier 1 is named '" + name + "'; a name begins with a letter"));
    EXPECT_THAT(message_of([&named] {
                  question_from_json(R"({"chain":{"repeat":1,"step":{}},"options":{},"platform":)" +
                                     named + "}");
                }),
                HasSubstr("tier 1 is named '" + name + "'"));
    EXPECT_THAT(message_of([&name] { split_tier("tier", name + ":slots=3"); }),
                HasSubstr("tier is named '" + name + "'; a name begins with a letter"));
  }
  EXPECT_EQ(platform_from_json(R"({"tiers":[{"name":"Disk-2.b_c"}]})").tiers[0].name, "Disk-2.b_c");
}

TEST(ActionText, IsOneObjectEach) {
  const Platform platform{"", kUnlimited, {Tier{.name = "disk"}, Tier{.name = "t\"ape"}}};
  EXPECT_EQ(to_json(Action{Advance{0, 4}}, platform), R"({"action":"advance","from":0,"to":4})");
  EXPECT_EQ(to_json(Action{Record{4, 5}}, platform), R"({"action":"record","from":4,"to":5})");
  EXPECT_EQ(to_json(Action{Reverse{4, 1'000'000'000'000}}, platform),
            R"({"action":"reverse","from":4,"to":1000000000000})");
  EXPECT_EQ(to_json(Action{Copy{Item::state, Place::work, Place::slow(0), 4}}, platform),
            R"({"action":"copy","item":"state","step":4,"from":"work","to":"disk"})");
  EXPECT_EQ(to_json(Action{Copy{Item::tape, Place::slow(1), Place::fast, 4}}, platform),
            R"({"action":"copy","item":"tape","step":4,"from":"t\"ape","to":"fast"})");
  EXPECT_EQ(to_json(Action{Drop{Item::tape, Place::fast, 3}}, platform),
            R"({"action":"drop","item":"tape","step":3,"place":"fast"})");
}

TEST(PlanText, HasEveryWordOfTheSummary) {
  Plan plan;
  plan.strategy = "h_revolve";
  plan.parameters = {{"interval", 4}};
  plan.optimal = true;
  plan.prediction = {13, 7, 6, 30, 25.1, 0.5, {3, 40}, {{5, 6}}};
  plan.bound = {18.25, "why"};
  plan.machine.platform.tiers = {Tier{.name = "disk"}};
  EXPECT_EQ(nlohmann::json::parse(to_json(plan, 6, 0.001, 2)), nlohmann::json::parse(R"({
      "strategy":"h_revolve","steps":6,"forwards":13,"advances":7,"records":6,"seconds":25.1,"bound_seconds":18.25,
      "optimal":true,"peak":{"fast":3,"disk":40},"moved":{"disk":{"written":5,"read":6}},"stall_seconds":0.5,
      "actions":30,"plan_seconds":0.001,"least_budget":2,"parameters":{"interval":4},"bound_relaxation":"why"})"));
  EXPECT_TRUE(nlohmann::json::parse(to_json(plan, 6, 0, std::nullopt))["least_budget"].is_null());
  plan.prediction.seconds = 0.1 + 0.2;
  EXPECT_EQ(nlohmann::json::parse(to_json(plan, 6, 0, 2))["seconds"].get<double>(), 0.1 + 0.2);
}

TEST(Presets, AreAllReadableAndNamedAfterTheirFiles) {
  EXPECT_THAT(preset_names(),
              ::testing::ElementsAre("h200-node", "ipu-mk2", "ipu-mk2-tile", "laptop"));
  for (const std::string& name : preset_names()) {
    const Platform platform = preset(name);
    EXPECT_EQ(platform.name, name);
    EXPECT_FALSE(platform.tiers.empty()) << name;
    for (const Tier& tier : platform.tiers) {
      EXPECT_GT(tier.capacity, platform.fast) << name;
      EXPECT_TRUE(std::isfinite(tier.write_rate) && std::isfinite(tier.read_rate)) << name;
    }
  }
  EXPECT_EQ(preset("ipu-mk2").fast, 1472 * preset("ipu-mk2-tile").fast);
  EXPECT_THAT(message_of([] { preset("ipu"); }),
              HasSubstr("h200-node, ipu-mk2, ipu-mk2-tile, laptop"));
}

TEST(QuestionText, ReadsBackWhatItWrites) {
  PlanOptions options;
  options.strategy = "h_revolve";
  options.slots = 7;
  options.intervals = {5, 2};
  options.period = 3;
  options.sync = true;
  Platform platform;
  platform.name = "box";
  platform.tiers.push_back({.name = "disk", .capacity = 100});
  const PlanQuestion question{Chain::uniform(9, {}), platform, options};
  const std::string text = to_json(question);
  const PlanQuestion same = question_from_json(text);
  EXPECT_EQ(to_json(same), text);
  EXPECT_EQ(same.options.slots, 7);
  EXPECT_EQ(same.options.intervals, options.intervals);
  EXPECT_TRUE(same.options.sync);
  EXPECT_FALSE(same.options.budget);
  EXPECT_EQ(same.platform, platform);
  EXPECT_THAT(message_of([] { question_from_json("{}"); }),
              HasSubstr("the key \"chain\" is missing"));
  EXPECT_THAT(message_of([] {
                question_from_json(R"({"chain":{"steps":[]},"platform":{},"options":{"slot":1}})");
              }),
              HasSubstr("slot"));
}

}  // namespace
}  // namespace ebb::test::text_test
