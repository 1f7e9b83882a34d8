// SPDX-License-Identifier: Apache-2.0
#include "ebb/core/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/message_of.h"

namespace ebb::test::json_test {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(ParseJson, NamesLineAndByteOfTheFirstMistake) {
  const auto message = [](const char* text) {
    return message_of([text] { parse_json(text, "chain"); });
  };
  EXPECT_THAT(message("{\n\"a\": 1,\n\"b\" 2}"),
              AllOf(StartsWith("chain: not valid JSON at line 3, byte "), HasSubstr("':'")));
  EXPECT_THAT(message(""), HasSubstr("not valid JSON at byte 1"));
  EXPECT_THAT(message("{\"a\":"), HasSubstr("unexpected end of input"));
  EXPECT_THAT(message("{\"a\": 1]"),
              AllOf(StartsWith("chain: not valid JSON at byte 8: "), Not(HasSubstr("cut off"))));
  EXPECT_THAT(message("{\"a\": [1,"), HasSubstr("it may be cut off"));
  EXPECT_THAT(message("{} {}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(message("{\"a\": NaN}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(message("{\"a\": 1e999}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(message("{\"a\": \"\xff\"}"), HasSubstr("not valid JSON"));
}

TEST(ParseJson, RefusesAKeyGivenTwiceInOneObjectOnly) {
  EXPECT_THAT(message_of([] { parse_json(R"({"a":1,"b":{"a":2},"a":3})", "x"); }),
              HasSubstr("\"a\" is given twice"));
  EXPECT_EQ(parse_json(R"([{"a":1},{"a":2,"b":{"a":3}}])", "x").size(), 2U);
}

TEST(ParseJson, RefusesAbsurdNesting) {
  EXPECT_THAT(message_of([] { parse_json(std::string(100'000, '['), "x"); }),
              HasSubstr("nested deeper than 16"));
}

TEST(JsonObject, RefusesOtherValuesAndUnknownKeys) {
  const Json array = parse_json("[1]", "x");
  EXPECT_THAT(message_of([&] { JsonObject(array, "x", {}); }),
              HasSubstr("expected an object {...}, found an array"));
  const Json json = parse_json(R"({"tape":1,"tapes":2})", "x");
  EXPECT_EQ(message_of([&] { JsonObject(json, "chain: step", {"state", "tape"}); }),
            "chain: step: unknown key \"tapes\"; allowed are state, tape");
}

struct JsonObjectValues : ::testing::Test {
  const Json json =
      parse_json(R"({"whole":3,"float":2.5,"big":1e6,"negative":-1,"huge":9223372036854775807,
                                   "beyond":9223372036854775808,"text":"64KiB","rate":"2.5GB/s","yes":true,
                                   "none":null,"list":[1]})",
                 "file");
  const JsonObject object{json,
                          "file",
                          {"whole", "float", "big", "negative", "huge", "beyond", "text", "rate",
                           "yes", "none", "list"}};
};

TEST_F(JsonObjectValues, ReadsEachType) {
  EXPECT_EQ(object.number("float", 0), 2.5);
  EXPECT_EQ(object.number("whole", 0), 3);
  EXPECT_EQ(object.number("absent", 7), 7);
  EXPECT_EQ(object.integer("whole", 0), 3);
  EXPECT_EQ(object.integer("big", 0), 1'000'000);
  EXPECT_EQ(object.integer("negative", 0), -1);
  EXPECT_EQ(object.integer("huge", 0), kUnlimited);
  EXPECT_EQ(object.bytes("whole", 0), 3);
  EXPECT_EQ(object.bytes("big", 0), 1'000'000);
  EXPECT_EQ(object.bytes("text", 0), 65536);
  EXPECT_EQ(object.bytes("absent", 5), 5);
  EXPECT_EQ(object.rate("rate", 0), 2.5e9);
  EXPECT_EQ(object.rate("float", 0), 2.5);
  EXPECT_TRUE(object.boolean("yes", false));
  EXPECT_EQ(object.text("text", ""), "64KiB");
  EXPECT_EQ(object.text("absent", "x"), "x");
  EXPECT_TRUE(object.has("none"));
  EXPECT_FALSE(object.has("absent"));
}

TEST_F(JsonObjectValues, NamesKeyAndValueOfAWrongType) {
  EXPECT_EQ(message_of([&] { object.number("text", 0); }),
            "file: text is \"64KiB\"; it must be a number");
  EXPECT_THAT(message_of([&] { object.number("none", 0); }), HasSubstr("file: none is null"));
  EXPECT_THAT(message_of([&] { object.integer("float", 0); }), HasSubstr("file: float is 2.5"));
  EXPECT_THAT(message_of([&] { object.integer("beyond", 0); }), HasSubstr("below 2^63"));
  EXPECT_THAT(message_of([&] { object.bytes("negative", 0); }), HasSubstr("file: negative is -1"));
  EXPECT_THAT(message_of([&] { object.bytes("beyond", 0); }), HasSubstr("2^63"));
  EXPECT_THAT(message_of([&] { object.bytes("float", 0); }), HasSubstr("whole number"));
  EXPECT_THAT(message_of([&] { object.bytes("rate", 0); }), HasSubstr("64KiB"));
  EXPECT_THAT(message_of([&] { object.bytes("list", 0); }), HasSubstr("an array"));
  EXPECT_THAT(message_of([&] { object.rate("negative", 0); }), HasSubstr("above 0"));
  EXPECT_THAT(message_of([&] { object.rate("yes", 0); }), HasSubstr("above 0"));
  EXPECT_THAT(message_of([&] { object.boolean("whole", false); }), HasSubstr("true or false"));
  EXPECT_THAT(message_of([&] { object.text("whole", ""); }), HasSubstr("it must be text"));
}

TEST(JsonObject, SaysWhereInsideAnArray) {
  const Json json = parse_json(R"({"tape":"x"})", "x");
  const JsonObject object(json, "chain: steps[3]", {"tape"});
  EXPECT_THAT(message_of([&] { object.bytes("tape", 0); }),
              StartsWith("chain: steps[3].tape is \"x\""));
}

TEST(JsonString, QuotesAndReplacesWhatIsNotText) {
  EXPECT_EQ(json_string("a\"b\n"), R"("a\"b\n")");
  EXPECT_EQ(json_string("\xff"), "\"\xEF\xBF\xBD\"");
}

}  // namespace
}  // namespace ebb::test::json_test
