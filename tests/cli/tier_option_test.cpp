// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/tier_option.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>

#include "ebb/core/error.h"
#include "ebb/store/tier_kinds.h"

namespace ebb {
namespace {

using ::testing::HasSubstr;

TEST(TierOption, ReadsEveryKey) {
  const TierOption option =
      parse_tier("disk:capacity=4GiB,write=2.5GB/s,read=0.5,latency=0.25,duplex=no");
  EXPECT_EQ(option.tier, (Tier{"disk", 4_GiB, 2.5e9, 0.5, 0.25, 0.25, false}));
  EXPECT_FALSE(option.slots);
  EXPECT_EQ(option.sized(100), option.tier);
}

TEST(TierOption, CountsInStatesWithSlots) {
  const TierOption option = parse_tier("disk:slots=3");
  EXPECT_EQ(option.slots, 3);
  EXPECT_EQ(option.sized(100).capacity, 300);
  EXPECT_EQ(parse_tier("disk:slots=1e12").sized(1_GiB).capacity, kUnlimited);
}

TEST(TierOption, TimesAreSecondsOfATransferOfAnySizeAndLatencyIsAdded) {
  const Tier tier = parse_tier("disk:write_time=20,read_time=5,latency=1").tier;
  EXPECT_EQ(tier.write_seconds(1), 21);
  EXPECT_EQ(tier.write_seconds(1_GiB), 21);
  EXPECT_EQ(tier.read_seconds(7), 6);
}

TEST(TierOption, AloneANameIsAFreeUnlimitedTier) {
  for (const char* word : {"disk", "disk:"})
    EXPECT_EQ(parse_tier(word).tier, Tier{.name = "disk"}) << word;
}

TEST(TierOption, SaysWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "--tier names a tier ''"},
      {":slots=3", "--tier names a tier ''"},
      {"work:slots=3", "not 'work' or 'fast'"},
      {"fast", "not 'work' or 'fast'"},
      {"a b", "letters, digits"},
      {"a\xff", "letters, digits"},
      {"1e400", "begins with a letter"},
      {"--json", "begins with a letter"},
      {"disk:slots=3,", "nothing follows the last comma"},
      {"disk:slots", "--tier disk: cannot read 'slots'"},
      {"disk:size=3", "cannot read 'size=3'; write key=value with the keys slots, capacity"},
      {"disk:slots=3,,", "cannot read ''"},
      {"disk:slots=-1", "--tier disk: slots is '-1'"},
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
      {"disk:file=/tmp", "file is for tiers of this machine"},
      {"disk:memory", "memory is for tiers of this machine"},
      {"disk:duplex=maybe", "duplex is 'maybe'; it must be yes or no"},
  };
  for (const auto& [word, expected] : cases) {
    try {
      parse_tier(word);
      ADD_FAILURE() << "accepted '" << word << "'";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr(expected));
    }
  }
}

TEST(RealTier, IsNamedByWhatItIs) {
  const RealTier disk = parse_real_tier("disk:file=/a:b=c,capacity=4GiB,engine=threads,direct=no");
  EXPECT_EQ(disk.kind->word, "file");
  EXPECT_EQ(disk.directory, "/a:b=c");
  EXPECT_EQ(disk.tier.name, "disk");
  EXPECT_EQ(disk.tier.capacity, 4_GiB);
  EXPECT_EQ(disk.options.engine, FileEngine::threads);
  EXPECT_FALSE(disk.options.direct);

  const RealTier ram = parse_real_tier("ram:capacity=3MiB,memory");
  EXPECT_EQ(ram.kind->word, "memory");
  EXPECT_EQ(ram.tier.capacity, 3_MiB);
  const RealTier free = parse_real_tier("free:null");
  EXPECT_EQ(free.kind->word, "null");
  EXPECT_EQ(free.tier.capacity, kUnlimited);
}

TEST(RealTier, HelpNamesEveryKindAndKey) {
  const std::string lines = real_tier_lines(), sentence = real_tier_sentence();
  for (const TierKind& kind : tier_kinds()) {
    EXPECT_THAT(lines, HasSubstr("NAME:" + kind.usage() + "[,capacity=BYTES] "));
    EXPECT_THAT(lines, HasSubstr(std::string(kind.what) + "\n"));
    EXPECT_THAT(sentence, HasSubstr("NAME:" + kind.usage()));
    for (const TierKey& key : kind.keys) {
      EXPECT_THAT(lines, HasSubstr("[," + std::string(key.name) + "="));
    }
  }
}

TEST(RealTier, HasTheRoomThatIsFree) {
  const RealTier disk = parse_real_tier(temporary_tier());
  EXPECT_EQ(disk.options.engine, FileEngine::any);
  EXPECT_TRUE(disk.options.direct);
  EXPECT_GT(disk.tier.capacity, 0);
  EXPECT_LT(disk.tier.capacity, kUnlimited);
  EXPECT_GT(parse_real_tier("ram:memory").tier.capacity, 0);
  EXPECT_EQ(parse_real_tier("disk:file=/no/such/place").tier.capacity, kUnlimited);
}

}  // namespace
}  // namespace ebb
