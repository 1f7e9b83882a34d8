// SPDX-License-Identifier: Apache-2.0
#include "ebb/codec/fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "tests/codec/fields_of_elements.h"
#include "tests/message_of.h"

namespace ebb::test::fields_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::vector<FieldShape> kFields{
    {.name = "state", .offset = 0, .bytes = 40},
    {.name = "gates", .offset = 40, .bytes = 400},
    {.name = "spikes", .element = Element::f64, .offset = 448, .bytes = 160},
    {.name = "flags", .element = Element::byte, .offset = 608, .bytes = 5},
};
constexpr Bytes kItem = 620;

Field item_of_ones() {
  Field item(kItem, std::byte{3});
  const Field ones = bytes_of(std::vector<float>(110, 1.0F));
  const Field wide = bytes_of(std::vector<double>(20, 1.0));
  std::ranges::copy(ones, item.begin());
  std::ranges::copy(wide, item.begin() + 448);
  return item;
}

Field encoded(const FieldCodec& codec, const Field& item) {
  Field to(static_cast<std::size_t>(codec.encoded_bytes()), std::byte{0xA5});
  codec.encode(item, to);
  return to;
}

Field round_trip(const FieldCodec& codec, const Field& item) {
  Field back(item.size(), std::byte{0x5A});
  codec.decode(encoded(codec, item), back);
  return back;
}

TEST(FieldCodec, RawKeepsTheItem) {
  const FieldCodec codec("raw", kFields, kItem);
  EXPECT_TRUE(codec.exact());
  EXPECT_EQ(codec.raw_bytes(), kItem);
  EXPECT_EQ(codec.encoded_bytes(), kItem);
  EXPECT_EQ(encoded(codec, item_of_ones()), item_of_ones());
  for (const Bytes at : {0, 7, 300, 619}) EXPECT_EQ(codec.kept_at(at), at);
}

TEST(FieldCodec, OneCodecIsForAllFieldsThatTakeIt) {
  const FieldCodec codec("bf16", kFields, kItem);
  EXPECT_FALSE(codec.exact());
  // 20 + 4 to 8, 200, 8 between the fields, 40, and from byte 608 the rest.
  EXPECT_EQ(codec.encoded_bytes(), 24 + 200 + 8 + 40 + 12);
  EXPECT_EQ(codec.kept_at(440), 224);
  EXPECT_EQ(codec.kept_at(608), 272);
  EXPECT_EQ(round_trip(codec, item_of_ones()), item_of_ones());
}

TEST(FieldCodec, NamedFieldsHaveTheirOwn) {
  const FieldCodec codec("spikes=bits,gates=int8", kFields, kItem);
  EXPECT_FALSE(codec.exact());
  EXPECT_EQ(codec.encoded_bytes(), 40 + (8 + 100) + 4 + 8 + 3 + 5 + 12);
  EXPECT_EQ(codec.kept_at(39), 39);
  EXPECT_EQ(round_trip(codec, item_of_ones()), item_of_ones());
  EXPECT_TRUE(FieldCodec("spikes=bits", kFields, kItem).exact());
  EXPECT_TRUE(FieldCodec("spikes=bits,gates=raw", kFields, kItem).exact());
}

TEST(FieldCodec, WhatIsToBeKeptIsKept) {
  const FieldCodec codec("int8", kFields, kItem, 0, 440);
  EXPECT_EQ(codec.encoded_bytes(), 448 + (4 + 20) + 12);
  const FieldCodec named("gates=int8", kFields, kItem, 40, 400);
  EXPECT_EQ(named.encoded_bytes(), kItem);
  EXPECT_TRUE(named.exact());
}

TEST(FieldCodec, WhatIsBetweenThePartsIsZero) {
  const FieldCodec codec("bf16", kFields, kItem);
  const Field to = encoded(codec, item_of_ones());
  for (std::size_t i = 20; i < 24; ++i) EXPECT_EQ(to[i], std::byte{0});
}

TEST(FieldCodec, ValuesAreRefusedWithTheFieldsName) {
  Field item = item_of_ones();
  const std::vector<double> bad{0.5};
  std::ranges::copy(bytes_of(bad), item.begin() + 472);
  for (const char* words : {"bits", "spikes=bits"}) {
    const FieldCodec codec(words, kFields, kItem);
    EXPECT_THAT(message_of([&] { encoded(codec, item); }),
                AllOf(HasSubstr("field 'spikes'"), HasSubstr("element 3 is 0.5")));
  }
}

TEST(FieldCodec, ItemsOfAnotherSize) {
  const FieldCodec codec("bf16", kFields, kItem);
  const Field item = item_of_ones();
  Field to(static_cast<std::size_t>(codec.encoded_bytes()));
  EXPECT_THROW(codec.encode(std::span(item).first(619), to), Error);
  EXPECT_THROW(codec.encode(item, std::span(to).first(to.size() - 1)), Error);
  Field back(kItem);
  EXPECT_THROW(codec.decode(to, std::span(back).first(619)), Error);
  try {
    codec.decode(std::span(to).first(to.size() - 1), back);
    ADD_FAILURE() << "a byte too few";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
  }
}

TEST(FieldCodec, KeptBytesAreFoundAndOthersAreNot) {
  const FieldCodec codec("gates=int8", kFields, kItem);
  EXPECT_THAT(message_of([&] { codec.kept_at(40); }), HasSubstr("field 'gates'"));
  EXPECT_THAT(message_of([&] { codec.kept_at(439); }), HasSubstr("field 'gates'"));
  EXPECT_THAT(message_of([&] { codec.kept_at(620); }), HasSubstr("no byte 620"));
  EXPECT_THAT(message_of([&] { codec.kept_at(-1); }), HasSubstr("no byte -1"));
}

TEST(FieldCodec, WrongWords) {
  const auto refusal = [](std::string_view words) {
    return message_of([&] { FieldCodec(words, kFields, kItem); });
  };
  EXPECT_THAT(refusal("gate=int8"),
              AllOf(HasSubstr("no field 'gate'"), HasSubstr("state, gates, spikes, flags")));
  EXPECT_THAT(refusal("zip"), HasSubstr("no codec 'zip'"));
  EXPECT_THAT(refusal(""), HasSubstr("no codec ''"));
  EXPECT_THAT(refusal("gates=zip"), AllOf(HasSubstr("field 'gates'"), HasSubstr("no codec 'zip'")));
  EXPECT_THAT(refusal("gates="), HasSubstr("no codec ''"));
  EXPECT_THAT(refusal("gates=int8,"), HasSubstr("'' in 'gates=int8,' is not field=codec"));
  EXPECT_THAT(refusal("gates=int8,bits"), HasSubstr("'bits'"));
  EXPECT_THAT(refusal("gates=int8,gates=bf16"), HasSubstr("several codecs"));
  EXPECT_THAT(refusal("events"), AllOf(HasSubstr("events has no fixed size"), HasSubstr("int8")));
  EXPECT_THAT(refusal("gates=events:5"), AllOf(HasSubstr("'gates'"), HasSubstr("no fixed size")));
  EXPECT_THAT(refusal("flags=bf16"), AllOf(HasSubstr("'flags'"), HasSubstr("float and double")));
  EXPECT_THAT(refusal("pool:2x7"), AllOf(HasSubstr("'state'"), HasSubstr("rows of 7")));
  EXPECT_THAT(message_of([] { FieldCodec("raw:3", {}, 8); }), HasSubstr("no parameter"));
  EXPECT_THAT(message_of([] { FieldCodec("a=bf16", {}, 8); }), HasSubstr("there are none"));
}

TEST(FieldCodec, WrongLayouts) {
  const auto refusal = [](std::vector<FieldShape> fields, Bytes item = 100, Bytes at = 0,
                          Bytes kept = 0) {
    return message_of([&] { FieldCodec("bf16", std::move(fields), item, at, kept); });
  };
  EXPECT_THAT(
      refusal({{.name = "a", .offset = 8, .bytes = 8}, {.name = "b", .offset = 0, .bytes = 12}}),
      AllOf(HasSubstr("'a'"), HasSubstr("'b'"), HasSubstr("overlap at byte 8")));
  EXPECT_THAT(
      refusal({{.name = "a", .offset = 8, .bytes = 8}, {.name = "a", .offset = 16, .bytes = 8}}),
      HasSubstr("several fields 'a'"));
  EXPECT_THAT(refusal({{.name = "a", .offset = 96, .bytes = 8}}), HasSubstr("item of 100 bytes"));
  EXPECT_THAT(refusal({{.name = "a", .offset = -4, .bytes = 8}}), HasSubstr("at -4"));
  EXPECT_THAT(refusal({{.name = "a", .offset = 4, .bytes = -8}}), HasSubstr("-8 bytes"));
  EXPECT_THAT(refusal({{.name = "a", .offset = 4, .bytes = kUnlimited}}), HasSubstr("at 4"));
  EXPECT_THAT(refusal({{.name = "a", .offset = 6, .bytes = 8}}), HasSubstr("aligned"));
  EXPECT_THAT(refusal({{.name = "a", .offset = 4, .bytes = 7}}), HasSubstr("aligned"));
  EXPECT_THAT(refusal({{.name = "a", .offset = 8, .bytes = 8}}, 100, 0, 12),
              AllOf(HasSubstr("'a'"), HasSubstr("partly")));
  EXPECT_THAT(refusal({{.name = "a", .offset = 8, .bytes = 8}}, 100, 10, 2), HasSubstr("partly"));
  EXPECT_THAT(refusal({}, 100, 90, 11), HasSubstr("11 bytes at 90"));
  EXPECT_THAT(refusal({}, -1), HasSubstr("-1 bytes"));
  EXPECT_EQ(
      refusal({{.name = "a", .offset = 8, .bytes = 8}, {.name = "none", .offset = 12, .bytes = 0}}),
      "no error");
}

// A layout drawn at random, and what a plain reading of the contract makes of it.
struct Drawn {
  std::vector<FieldShape> fields;
  std::vector<std::string> codecs;  // "" for none
  Bytes item = 0, keep_offset = 0, keep_bytes = 0;
  std::string words;
};

Drawn draw(std::mt19937_64& random) {
  Drawn drawn;
  const std::uint64_t count = random() % 6;
  const std::uint64_t kept = random() % 8;
  for (std::uint64_t i = 0; i < count; ++i) {
    const Element element = std::array{Element::f32, Element::f64, Element::byte}[random() % 3];
    const Bytes size = element_bytes(element);
    drawn.item = (drawn.item + static_cast<Bytes>(random() % 20) + size - 1) / size * size;
    const FieldShape field{.name = "f" + std::to_string(i),
                           .element = element,
                           .offset = drawn.item,
                           .bytes = size * static_cast<Bytes>(random() % 90)};
    drawn.item += field.bytes;
    if (i == kept) {
      drawn.keep_offset = field.offset;
      drawn.keep_bytes = field.bytes;
    }
    const char* codec = std::array{"", "raw", "bf16", "int8", "bits", "pool:3"}[random() % 6];
    if (element == Element::byte && std::string_view(codec) != "raw") codec = "";
    drawn.codecs.emplace_back(codec);
    drawn.fields.push_back(field);
    if (*codec != '\0') drawn.words += (drawn.words.empty() ? "" : ",") + field.name + "=" + codec;
  }
  drawn.item += static_cast<Bytes>(random() % 20);
  if (drawn.words.empty()) drawn.words = "raw";
  return drawn;
}

std::span<std::byte> part(Field& item, const FieldShape& field) {
  return std::span(item).subspan(static_cast<std::size_t>(field.offset),
                                 static_cast<std::size_t>(field.bytes));
}

Field filled(const Drawn& drawn, std::mt19937_64& random) {
  Field item(static_cast<std::size_t>(drawn.item));
  for (std::byte& byte : item) byte = static_cast<std::byte>(random());
  for (const FieldShape& field : drawn.fields) {
    const auto count = static_cast<std::size_t>(field.bytes);
    if (field.element == Element::f32) {
      std::ranges::copy(bytes_of(spikes<float>(count / 4, 0.4, random())),
                        part(item, field).begin());
    } else if (field.element == Element::f64) {
      std::ranges::copy(bytes_of(spikes<double>(count / 8, 0.4, random())),
                        part(item, field).begin());
    }
  }
  return item;
}

// What the codecs, each by itself, make of an item.
struct Wanted {
  Field item;
  bool exact = true;
  Bytes least = 0;
  std::vector<bool> encoded_byte;
};

Wanted wanted_of(const Drawn& drawn, const Field& item) {
  Wanted wanted{.item = item, .least = drawn.item, .encoded_byte = {}};
  wanted.encoded_byte.assign(item.size(), false);
  for (std::size_t i = 0; i < drawn.fields.size(); ++i) {
    const FieldShape& field = drawn.fields[i];
    const bool kept = drawn.keep_bytes > 0 && field.offset == drawn.keep_offset;
    if (drawn.codecs[i].empty() || drawn.codecs[i] == "raw" || kept || field.bytes == 0) continue;
    const auto alone = make_codec(drawn.codecs[i], field.element);
    const auto in = part(wanted.item, field);
    const Field back = test::round_trip(*alone, Field(in.begin(), in.end()));
    std::ranges::copy(back, in.begin());
    wanted.exact = wanted.exact && drawn.codecs[i] == "bits";
    wanted.least += alone->encoded_bytes(field.bytes) - field.bytes;
    for (Bytes b = field.offset; b < field.offset + field.bytes; ++b) {
      wanted.encoded_byte[static_cast<std::size_t>(b)] = true;
    }
  }
  return wanted;
}

TEST(FieldCodec, RandomLayoutsAgainstTheCodecsThemselves) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 3000; ++round) {
    const Drawn drawn = draw(random);
    std::vector<FieldShape> fields = drawn.fields;
    std::ranges::shuffle(fields, random);
    const FieldCodec codec(drawn.words, fields, drawn.item, drawn.keep_offset, drawn.keep_bytes);
    const Field item = filled(drawn, random);
    const Wanted wanted = wanted_of(drawn, item);

    SCOPED_TRACE(testing::Message() << "round " << round << ": " << drawn.words);
    ASSERT_EQ(codec.exact(), wanted.exact);
    ASSERT_GE(codec.encoded_bytes(), wanted.least);
    ASSERT_LE(codec.encoded_bytes(),
              wanted.least + 7 * (2 * static_cast<Bytes>(drawn.fields.size()) + 1));
    ASSERT_EQ(round_trip(codec, item), wanted.item);
    const Field to = encoded(codec, item);
    Bytes before = -1;
    for (std::size_t b = 0; b < item.size(); ++b) {
      if (wanted.encoded_byte[b]) continue;
      const Bytes at = codec.kept_at(static_cast<Bytes>(b));
      ASSERT_GT(at, before) << "the order of the item";
      ASSERT_EQ(at % 8, static_cast<Bytes>(b) % 8);
      ASSERT_EQ(to[static_cast<std::size_t>(at)], item[b]);
      before = at;
    }
  }
}

}  // namespace
}  // namespace ebb::test::fields_test
