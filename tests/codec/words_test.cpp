// SPDX-License-Identifier: Apache-2.0
// Names and parameters of codecs, and what is said of wrong ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/codec/fields_of_elements.h"
#include "tests/message_of.h"

namespace ebb::test::words_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string refusal(std::string_view words, Element element = Element::f32) {
  return message_of([&] { make_codec(words, element); });
}

bool has(std::string_view name) {
  for (const CodecRow& row : codecs()) {
    if (row.name == name) return true;
  }
  return false;
}

TEST(CodecWords, UnknownNamesListTheKnownOnes) {
  for (const char* words : {"zip", "", "RAW", "bf16 ", "int8,bits", ":4"}) {
    const std::string message = refusal(words);
    EXPECT_THAT(message, HasSubstr("there is no codec '"));
    for (const CodecRow& row : codecs()) EXPECT_THAT(message, HasSubstr(row.name));
  }
}

TEST(CodecWords, NamesOfTheTableAreFound) {
  for (const CodecRow& row : codecs()) {
    EXPECT_EQ(&codec_row(row.name), &row);
    EXPECT_NE(make_codec(row.name, Element::f32), nullptr);
  }
}

TEST(CodecWords, CodecsOfOtherBuildsAreUnavailable) {
  for (const char* name : {"zstd", "lz4"}) {
    if (has(name)) continue;
    try {
      codec_row(name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unavailable);
    }
  }
}

TEST(CodecWords, ParametersWhereThereAreNone) {
  for (const CodecRow& row : codecs()) {
    const std::string name(row.name);
    if (row.parameter.empty()) {
      EXPECT_THAT(refusal(name + ":3"),
                  AllOf(HasSubstr(name), HasSubstr("'3'"), HasSubstr("no parameter")));
      EXPECT_THAT(refusal(name + ":"), HasSubstr("no parameter"));
    } else {
      EXPECT_THAT(refusal(name + ":"), HasSubstr(row.parameter));
    }
  }
}

TEST(CodecWords, WrongParametersSayWhatIsAllowed) {
  struct Case {
    const char *words, *value, *allowed;
  };
  const Case cases[] = {
      {"events:-1", "'-1'", "from 0 to 100"}, {"events:101", "'101'", "from 0 to 100"},
      {"events:5%", "'5%'", "from 0 to 100"}, {"events: 5", "' 5'", "from 0 to 100"},
      {"pool:0", "'0'", "from 1 to 1048576"}, {"pool:1048577", "'1048577'", "from 1 to 1048576"},
      {"pool:x", "''", "from 1 to 1048576"},  {"pool:2x", "''", "from 1 to 1073741824"},
      {"pool:2x0", "'0'", "from 1 to"},       {"pool:2x3x4", "'3x4'", "from 1 to"},
      {"pool:2.5", "'2.5'", "whole number"},  {"pool:99999999999999999999", "'9999", "whole"},
  };
  for (const Case& wrong : cases) {
    EXPECT_THAT(refusal(wrong.words), AllOf(HasSubstr(wrong.value), HasSubstr(wrong.allowed)))
        << wrong.words;
  }
  if (!has("zstd")) GTEST_SKIP() << "zstd is not in this build";
  for (const char* level : {"0", "20", "fast"}) {
    EXPECT_THAT(refusal("zstd:" + std::string(level)),
                AllOf(HasSubstr(level), HasSubstr("from 1 to 19")));
  }
}

TEST(CodecWords, EveryLevelOfZstdComesBack) {
  if (!has("zstd")) GTEST_SKIP() << "zstd is not in this build";
  const Field field = bytes_of(spikes<float>(3000, 0.1, 1));
  for (int level = 1; level <= 19; ++level) {
    EXPECT_EQ(round_trip(*make_codec("zstd:" + std::to_string(level), Element::byte), field),
              field);
  }
}

TEST(CodecWords, FieldsTooLargeForLz4) {
  if (!has("lz4")) GTEST_SKIP() << "lz4 is not in this build";
  EXPECT_THAT(message_of([] { make_codec("lz4", Element::f32)->encoded_bytes(2_GiB); }),
              AllOf(HasSubstr("2 GiB"), HasSubstr("take zstd")));
}

}  // namespace
}  // namespace ebb::test::words_test
