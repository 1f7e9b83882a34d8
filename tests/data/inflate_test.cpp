// SPDX-License-Identifier: Apache-2.0
#include "ebb/data/inflate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/made_files.h"

namespace ebb::test::inflate_test {
namespace {

using ::testing::HasSubstr;

std::string text_of(const std::string& compressed, std::size_t most = kMostInflated) {
  const std::vector<std::byte> plain = inflated(bytes_of(compressed), "f.gz", most);
  return {reinterpret_cast<const char*>(plain.data()), plain.size()};
}

class Inflate : public ::testing::Test {
  void SetUp() override {
    if (!can_inflate()) GTEST_SKIP() << "this build has no zlib";
  }
};

TEST_F(Inflate, GzipAndZlib) {
  EXPECT_EQ(text_of(gzip_member("ebb and flow")), "ebb and flow");
  EXPECT_EQ(text_of(zlib_stream("ebb and flow")), "ebb and flow");
  EXPECT_EQ(text_of(gzip_member("")), "");
}

TEST_F(Inflate, WhatIsReallyCompressed) {
  // zlib.compress(b"ebb " * 50, 9) in Python.
  const std::string bytes("\x78\xda\x4b\x4d\x4a\x52\x48\x1d\x06\x18\x00\x50\x5f\x40\x43", 15);
  std::string expected;
  for (int i = 0; i < 50; ++i) expected += "ebb ";
  EXPECT_EQ(text_of(bytes), expected);
}

TEST_F(Inflate, SeveralMembers) {
  EXPECT_EQ(text_of(gzip_member("ebb ") + gzip_member("") + gzip_member("flow")), "ebb flow");
}

TEST_F(Inflate, MoreThanTheFirstRoom) {
  std::string large;
  std::string members;
  for (int i = 0; i < 8; ++i) {
    const std::string part(50'000, static_cast<char>('a' + i));
    large += part;
    members += gzip_member(part);
  }
  EXPECT_EQ(text_of(members), large);
}

TEST_F(Inflate, TheCap) {
  const std::string bytes = gzip_member("0123456789");
  EXPECT_EQ(text_of(bytes, 10), "0123456789");
  EXPECT_EQ(message_of([&] { text_of(bytes, 9); }), "f.gz: more than 9 bytes when decompressed");
}

TEST_F(Inflate, EveryBeginningIsRefused) {
  for (const std::string& bytes : {gzip_member("ebb and flow"), zlib_stream("ebb and flow")}) {
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_EQ(message_of([&] { text_of(bytes.substr(0, size)); }),
                "f.gz: the compressed bytes end too early")
          << size;
    }
  }
}

TEST_F(Inflate, Damage) {
  std::string bytes = gzip_member("ebb and flow");
  bytes[16] = 'E';
  EXPECT_THAT(message_of([&] { text_of(bytes); }), HasSubstr("damaged: incorrect data check"));
  EXPECT_THAT(message_of([] { text_of("neither"); }), HasSubstr("damaged"));
  EXPECT_EQ(message_of([] { text_of(gzip_member("a") + "b"); }),
            "f.gz: bytes follow the compressed ones");
  EXPECT_EQ(message_of([] { text_of(zlib_stream("a") + gzip_member("b")); }),
            "f.gz: bytes follow the compressed ones");
}

}  // namespace
}  // namespace ebb::test::inflate_test
