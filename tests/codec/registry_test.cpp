// SPDX-License-Identifier: Apache-2.0
// What every codec of the table promises, whichever they are.
#include <gtest/gtest.h>

#include <string>

#include "ebb/core/error.h"
#include "tests/codec/fields_of_elements.h"

namespace ebb::test::registry_test {
namespace {

constexpr std::size_t kCounts[] = {0, 1, 2, 3, 7, 8, 9, 15, 63, 64, 65, 127, 128, 129, 1000, 4099};
constexpr Element kElements[] = {Element::f32, Element::f64, Element::byte};

template <class T>
std::vector<Field> numbers_fields(std::size_t count) {
  return {bytes_of(spikes<T>(count, 0.1, count)), bytes_of(std::vector<T>(count, T{0})),
          bytes_of(std::vector<T>(count, T{1})), bytes_of(numbers<T>(count, count)),
          bytes_of(odd_ones<T>(count, count))};
}

std::vector<Field> fields(Element element, std::size_t count) {
  if (element == Element::f32) return numbers_fields<float>(count);
  if (element == Element::f64) return numbers_fields<double>(count);
  auto all = numbers_fields<float>(count);
  for (Field& field : all) field.resize(count, std::byte{7});
  return all;
}

bool takes(const CodecRow& row, Element element) { return element != Element::byte || row.bytes; }

// True if the codec takes the field; then all that the row says is checked.
bool check(const CodecRow& row, const Codec& codec, const Field& field) {
  const auto raw = static_cast<Bytes>(field.size());
  const Bytes most = codec.encoded_bytes(raw);
  Field to(static_cast<std::size_t>(most), std::byte{0xA5});
  Bytes written = 0;
  try {
    written = codec.encode(field, to);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    EXPECT_NE(std::string(error.what()).find(row.name), std::string::npos) << error.what();
    return false;
  }
  if (row.fixed) {
    EXPECT_EQ(written, most);
  } else {
    EXPECT_GT(written, 0);
    EXPECT_LE(written, most);
  }
  to.resize(static_cast<std::size_t>(written));
  EXPECT_EQ(encoded(codec, field), to) << "the same field, other bytes";
  const Field back = decoded(codec, to, field.size());
  if (row.exact) {
    EXPECT_EQ(back, field);
  }
  return true;
}

TEST(Registry, EveryCodecKeepsItsRowsPromises) {
  for (const CodecRow& row : codecs()) {
    for (const Element element : kElements) {
      if (!takes(row, element)) continue;
      const auto codec = make_codec(row.name, element);
      for (const std::size_t count : kCounts) {
        std::size_t taken = 0;
        for (const Field& field : fields(element, count)) {
          SCOPED_TRACE(testing::Message() << row.name << ", elements of " << element_bytes(element)
                                          << ", " << count << " of them");
          taken += check(row, *codec, field) ? 1 : 0;
        }
        EXPECT_GE(taken, 3U) << row.name << " refuses what it is for";
      }
    }
  }
}

TEST(Registry, ElementsThatARowDoesNotNameAreRefused) {
  for (const CodecRow& row : codecs()) {
    if (row.bytes) continue;
    try {
      make_codec(row.name, Element::byte);
      ADD_FAILURE() << row.name << " takes bytes";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    }
  }
}

TEST(Registry, FieldsNeedNotBeAlignedBeyondTheirElements) {
  for (const CodecRow& row : codecs()) {
    for (const Element element : kElements) {
      if (!takes(row, element)) continue;
      const auto codec = make_codec(row.name, element);
      const auto shift = static_cast<std::size_t>(element_bytes(element));
      const Field field = fields(element, 200)[0];
      Field moved(shift, std::byte{0});
      moved.insert(moved.end(), field.begin(), field.end());
      Field to(static_cast<std::size_t>(codec->encoded_bytes(static_cast<Bytes>(field.size()))));
      to.resize(static_cast<std::size_t>(codec->encode(std::span(moved).subspan(shift), to)));
      EXPECT_EQ(to, encoded(*codec, field)) << row.name;
      codec->decode(to, std::span(moved).subspan(shift));
      EXPECT_EQ(Field(moved.begin() + static_cast<std::ptrdiff_t>(shift), moved.end()),
                decoded(*codec, to, field.size()))
          << row.name;
    }
  }
}

TEST(Registry, TooLittleRoom) {
  for (const CodecRow& row : codecs()) {
    const auto codec = make_codec(row.name, Element::f32);
    const Field field = bytes_of(spikes<float>(500, 0.2, 1));
    const Field whole = encoded(*codec, field);
    for (const std::size_t room : {std::size_t{0}, std::size_t{1}, std::size_t{3}, std::size_t{4},
                                   whole.size() / 2, whole.size() - 1}) {
      Field to(room);
      if (row.fixed) {
        EXPECT_THROW(codec->encode(field, to), Error) << row.name << " in " << room;
      } else {
        EXPECT_EQ(codec->encode(field, to), 0) << row.name << " in " << room;
      }
    }
    if (row.fixed) continue;
    // lz4 and zstd may want a little more room than they fill.
    Field to(whole.size() + 16);
    EXPECT_EQ(codec->encode(field, to), static_cast<Bytes>(whole.size())) << row.name;
  }
}

TEST(Registry, EncodedFieldsOfAnotherSizeAreAnIoError) {
  for (const CodecRow& row : codecs()) {
    const auto codec = make_codec(row.name, Element::f32);
    const Field field = bytes_of(spikes<float>(500, 0.2, 1));
    Field from = encoded(*codec, field);
    Field to(field.size());
    const auto expect_io = [&](const char* what) {
      try {
        codec->decode(from, to);
        ADD_FAILURE() << row.name << ": " << what;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::io) << row.name << ": " << what;
      }
    };
    from.push_back(std::byte{0});
    expect_io("a byte too many");
    from.pop_back();
    from.pop_back();
    expect_io("a byte too few");
    from.clear();
    expect_io("empty");
  }
}

TEST(Registry, SizesThatAreNone) {
  for (const CodecRow& row : codecs()) {
    const auto codec = make_codec(row.name, Element::f64);
    EXPECT_THROW(codec->encoded_bytes(-8), Error) << row.name;
    if (row.bytes) continue;
    Field field(12);
    Field to(100);
    EXPECT_THROW(codec->encoded_bytes(12), Error) << row.name;
    EXPECT_THROW(codec->encode(field, to), Error) << row.name;
    EXPECT_THROW(codec->decode(to, field), Error) << row.name;
  }
}

TEST(Registry, HugeSizesDoNotOverflow) {
  constexpr Bytes huge = kUnlimited / 8 * 8;
  for (const CodecRow& row : codecs()) {
    if (row.name == "lz4") continue;
    const auto codec = make_codec(row.name, Element::f64);
    EXPECT_GE(codec->encoded_bytes(huge), huge / 64) << row.name;
    EXPECT_GE(codec->encoded_bytes(huge), codec->encoded_bytes(1_GiB)) << row.name;
  }
}

}  // namespace
}  // namespace ebb::test::registry_test
