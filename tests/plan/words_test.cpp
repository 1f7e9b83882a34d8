// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "ebb/core/error.h"
#include "tests/message_of.h"

namespace ebb::test::words_test {
namespace {

using test::message_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string as_option(std::string_view word) { return "--" + std::string(word); }

const Chain kHundreds = Chain::uniform(3, StepCost{.state = 100, .tape = 100});

Tier tier(std::string_view word) { return PlanReader().tier(word, kHundreds); }

TEST(TierWords, ReadEveryKey) {
  EXPECT_EQ(tier("disk:capacity=4GiB,write=2.5GB/s,read=0.5,latency=0.25,duplex=no"),
            (Tier{"disk", 4_GiB, 2.5e9, 0.5, 0.25, 0.25, false}));
}

TEST(TierWords, CountInStatesWithSlots) {
  EXPECT_EQ(tier("disk:slots=3").capacity, 300);
  const Chain large = Chain::uniform(3, StepCost{.state = 1_GiB, .tape = 1_GiB});
  EXPECT_EQ(PlanReader().tier("disk:slots=1e12", large).capacity, kUnlimited);
}

TEST(TierWords, TimesAreSecondsOfATransferOfAnySizeAndLatencyIsAdded) {
  const Tier found = tier("disk:write_time=20,read_time=5,latency=1");
  EXPECT_EQ(found.write_seconds(1), 21);
  EXPECT_EQ(found.write_seconds(1_GiB), 21);
  EXPECT_EQ(found.read_seconds(7), 6);
}

TEST(TierWords, AloneANameIsAFreeUnlimitedTier) {
  for (const char* word : {"disk", "disk:"}) EXPECT_EQ(tier(word), Tier{.name = "disk"}) << word;
}

TEST(TierWords, AreReadInPartsToo) {
  const TierWord word{"my disk", {{"slots", "2"}, {"write", "1e9"}, {"duplex", "no"}}};
  const Tier found = PlanReader().tier(word, kHundreds);
  EXPECT_EQ(found, (Tier{.name = "my disk", .capacity = 200, .write_rate = 1e9, .duplex = false}));
  const TierWord wrong{"disk", {{"speed,write", "3"}}};
  EXPECT_THAT(message_of([&] { PlanReader().tier(wrong, kHundreds); }),
              StartsWith("tier disk: cannot read 'speed,write=3'; write key=value with the keys"));
}

TEST(TierWords, SayWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "tier is named ''"},
      {":slots=3", "tier is named ''"},
      {"work:slots=3", "not 'work' or 'fast'"},
      {"fast", "not 'work' or 'fast'"},
      {"a b", "letters, digits"},
      {"a\xff", "letters, digits"},
      {"1e400", "begins with a letter"},
      {"--json", "begins with a letter"},
      {"disk:slots=3,", "nothing follows the last comma"},
      {"disk:slots", "tier disk: cannot read 'slots'"},
      {"disk:size=3", "cannot read 'size=3'; write key=value with the keys slots, capacity"},
      {"disk:file=/tmp", "cannot read 'file=/tmp'"},
      {"disk:slots=3,,", "cannot read ''"},
      {"disk:slots=-1", "tier disk: slots is '-1'"},
      {"disk:slots=", "slots is ''"},
      {"disk:slots=3,slots=4", "slots is given twice"},
      {"disk:slots=3,capacity=4", "slots and capacity say the same thing"},
      {"disk:write=1,write_time=1", "write and write_time say the same thing"},
      {"disk:read=1,read_time=1", "read and read_time say the same thing"},
      {"disk:write=0", "write is '0'"},
      {"disk:read=-1", "read is '-1'"},
      {"disk:read=nan", "read is 'nan'"},
      {"disk:write_time=inf", "write_time is 'inf'"},
      {"disk:latency=-1", "latency is '-1'"},
      {"disk:latency=1e30", "latency is '1e30'"},
      {"disk:capacity=9223372036854775808", "capacity is '9223372036854775808'"},
      {"disk:duplex=maybe", "duplex is 'maybe'; it must be yes or no"},
  };
  for (const auto& [word, expected] : cases) {
    EXPECT_THAT(message_of([w = word] { tier(w); }), HasSubstr(expected)) << word;
    // The same words under the name that a program has for them.
    EXPECT_EQ(message_of([w = word] { PlanReader(&as_option).tier(w, kHundreds); }),
              "--" + message_of([w = word] { tier(w); }));
  }
}

TEST(TierWords, SlotsNeedStatesOfOneSize) {
  const Chain mixed = Chain::of({StepCost{.state = 1}, StepCost{.state = 2}});
  EXPECT_THAT(message_of([&] { PlanReader().tier("disk:slots=3", mixed); }),
              StartsWith("tier disk: slots counts states, but the chain's states differ in size"));
  EXPECT_EQ(PlanReader().tier("disk:capacity=3", mixed).capacity, 3);
}

TEST(ChainWordsTest, HaveTheUnitsOfTheLiterature) {
  const Chain chain = PlanReader().uniform_chain({.steps = "1e3"});
  EXPECT_EQ(chain.steps(), 1000);
  EXPECT_EQ(
      chain.at(0),
      (StepCost{.forward = 1, .record = 1, .backward = 2, .state = 1, .tape = 1, .adjoint = 1}));
  EXPECT_EQ(chain.call(), 0);
}

TEST(ChainWordsTest, AreAllRead) {
  const Chain chain =
      PlanReader().uniform_chain({"7", "0.5", "0.75", "1.25", "3", "1KiB", "4KiB", "2KiB", "100"});
  EXPECT_EQ(chain.at(0), (StepCost{.forward = 0.5,
                                   .record = 0.75,
                                   .backward = 1.25,
                                   .state = 1024,
                                   .tape = 4096,
                                   .adjoint = 2048,
                                   .scratch = 100}));
  EXPECT_EQ(chain.call(), 3);
  const StepCost some =
      PlanReader().uniform_chain({.steps = "1", .forward = "3", .state = "9"}).at(0);
  EXPECT_EQ(some.record, 3);
  EXPECT_EQ(some.adjoint, 9);
}

TEST(ChainWordsTest, AreNamedAsTheCallerDoes) {
  const PlanReader reader(&as_option);
  EXPECT_EQ(message_of([&] { reader.uniform_chain({}); }),
            "--steps is missing; give --steps or --chain");
  EXPECT_THAT(message_of([&] { reader.uniform_chain({.steps = "-1"}); }),
              StartsWith("--steps is '-1'; it must be"));
  EXPECT_THAT(message_of([] { PlanReader().uniform_chain({.steps = "1", .scratch = "-3"}); }),
              StartsWith("scratch is '-3'; it must be"));
  EXPECT_EQ(message_of([&] { reader.check_nothing_beside_chain({.tape = "3"}); }),
            "--chain and --tape contradict each other: the chain says it all");
  EXPECT_EQ(message_of([&] { reader.check_nothing_beside_chain({}); }), "no error");
}

TEST(PlatformWords, ArePresetsOrFiles) {
  EXPECT_EQ(PlanReader().platform("laptop").name, "laptop");
  EXPECT_THAT(message_of([] { PlanReader(&as_option).platform("lapto"); }),
              HasSubstr("--platform is 'lapto'; it must be a file such as ./lapto.json or one of"));
  try {
    PlanReader().platform("./nowhere.json");
    ADD_FAILURE() << "read a file that is not there";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_THAT(error.what(), StartsWith("platform: the file './nowhere.json' cannot be read"));
  }
}

TEST(OptionWordsTest, SetWhatTheySay) {
  const PlanOptions none = PlanReader().options({}, kHundreds);
  EXPECT_EQ(none.strategy, "auto");
  EXPECT_FALSE(none.budget || none.slots || none.working || none.period);
  const PlanOptions found = PlanReader().options(
      {.strategy = "revolve", .budget = "1KiB", .working = "3", .intervals = "5,2", .period = "7"},
      kHundreds);
  EXPECT_EQ(found.strategy, "revolve");
  EXPECT_EQ(found.budget, 1024);
  EXPECT_EQ(found.working, 3);
  EXPECT_THAT(found.intervals, ElementsAre(5, 2));
  EXPECT_EQ(found.period, 7);
  EXPECT_EQ(PlanReader().options({.slots = "4"}, kHundreds).slots, 4);
}

TEST(OptionWordsTest, SayWhatIsWrong) {
  const std::pair<OptionWords, const char*> cases[] = {
      {{.strategy = "revolv"}, "; did you mean revolve?"},
      {{.slots = "1", .budget = "1"}, "slots and budget contradict each other"},
      {{.slots = "1", .working = "1"}, "slots and working contradict each other"},
      {{.intervals = "3,0"}, "intervals is '0'"},
      {{.period = "0"}, "period is '0'"},
  };
  for (const auto& [words, expected] : cases) {
    EXPECT_THAT(message_of([&w = words] { PlanReader().options(w, kHundreds); }),
                HasSubstr(expected));
  }
}

}  // namespace
}  // namespace ebb::test::words_test
