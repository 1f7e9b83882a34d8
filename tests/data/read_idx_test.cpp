// SPDX-License-Identifier: Apache-2.0
#include "ebb/data/read_idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/made_files.h"

namespace ebb::test::read_idx_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

IdxArray read(const std::string& bytes) { return read_idx(bytes_of(bytes), "f"); }
std::string refusal(const std::string& bytes) {
  return message_of([&] { read(bytes); });
}

TEST(ReadIdx, PlainAndGzip) {
  const std::string bytes = idx({2, 1, 3}, "abcdef");
  const IdxArray array = read(bytes);
  EXPECT_THAT(array.shape, ElementsAre(2, 1, 3));
  EXPECT_THAT(array.values, ElementsAre('a', 'b', 'c', 'd', 'e', 'f'));
  if (!can_inflate()) GTEST_SKIP() << "this build has no zlib";
  EXPECT_EQ(read(gzip_member(bytes)).values, array.values);
}

TEST(ReadIdx, NoValues) { EXPECT_TRUE(read(idx({0, 0xffffffff, 0xffffffff}, "")).values.empty()); }

TEST(ReadIdx, Refusals) {
  EXPECT_THAT(refusal("\1\2\3\4"), HasSubstr("f: not an idx file"));
  EXPECT_THAT(refusal(std::string("\0\0\x0d\1", 4)), HasSubstr("f: an idx file of type 13"));
  EXPECT_THAT(refusal(std::string("\0\0\x08\0", 4)), HasSubstr("without dimensions"));
  EXPECT_EQ(refusal(idx({2, 3}, "abcde")), "f: its header says [2,3] bytes, 5 follow it");
  EXPECT_EQ(refusal(idx({2, 3}, "abcdefg")), "f: its header says [2,3] bytes, 7 follow it");
  // 2^96 and 2^64, which is 0 in 64 bits.
  EXPECT_THAT(refusal(idx({0x80000000, 0x80000000, 0x80000000, 8}, "")), HasSubstr("0 follow it"));
  EXPECT_THAT(refusal(idx({0x80000000, 0x80000000, 4}, "")), HasSubstr("0 follow it"));
}

TEST(ReadIdx, EveryBeginningIsRefused) {
  const std::string bytes = idx({2, 3}, "abcdef");
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_NE(refusal(bytes.substr(0, size)), "no error") << size;
  }
}

}  // namespace
}  // namespace ebb::test::read_idx_test
