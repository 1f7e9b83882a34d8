// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/tier_option.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>

#include "ebb/core/error.h"
#include "ebb/store/tier_kinds.h"
#include "tests/message_of.h"

namespace ebb::test::tier_option_test {
namespace {

using test::message_of;
using ::testing::HasSubstr;

TEST(TierOption, ATierToPlanForIsNoneOfThisMachine) {
  for (const char* word :
       {"disk:file=/tmp", "disk:memory", "disk:write=1,null", "disk:direct=no"}) {
    EXPECT_THAT(message_of([word] { refuse_real_keys(word); }),
                HasSubstr(" is for tiers of this machine"));
  }
  EXPECT_EQ(message_of([] { refuse_real_keys("disk:capacity=3,write=1,soul=2"); }), "no error");
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
}  // namespace ebb::test::tier_option_test
