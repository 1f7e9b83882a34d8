// SPDX-License-Identifier: Apache-2.0
// Whatever is read back, decoding gives a field or an error, and writes nowhere else.
#include <gtest/gtest.h>

#include <algorithm>

#include "ebb/core/error.h"
#include "tests/codec/fields_of_elements.h"
#include "tests/thorough.h"

namespace ebb::test::damage_test {
namespace {

void damage(Field& field, std::mt19937_64& random) {
  const std::uint64_t kind = random() % 4;
  if (kind == 0) field.resize(random() % (field.size() + 1));
  if (kind == 1) field.resize(field.size() + random() % 40, static_cast<std::byte>(random()));
  if (field.empty()) return;
  for (std::uint64_t times = kind == 2 ? 1 : random() % 20; times > 0; --times) {
    // Counts and lengths are in front: half of the damage goes there.
    const std::size_t reach =
        random() % 2 == 0 ? std::min<std::size_t>(field.size(), 24) : field.size();
    field[random() % reach] ^= static_cast<std::byte>(1U << (random() % 8));
  }
}

TEST(Damage, NeverLeavesTheField) {
  std::mt19937_64 random(1);
  std::size_t refused = 0;
  for (const CodecRow& row : codecs()) {
    for (const Element element : {Element::f32, Element::f64}) {
      const auto codec = make_codec(row.name, element);
      for (int round = 0; round < share_of(2000); ++round) {
        const Field field = bytes_of(spikes<double>(random() % 60, 0.15, random()));
        Field from =
            encoded(*codec, element == Element::f64
                                ? field
                                : bytes_of(spikes<float>(field.size() / 4, 0.2, random())));
        damage(from, random);
        constexpr std::size_t fence = 64;
        Field to(fence + field.size() + fence, std::byte{0xEE});
        try {
          codec->decode(from, std::span(to).subspan(fence, field.size()));
        } catch (const Error& error) {
          ++refused;
          ASSERT_EQ(error.code(), ErrorCode::io) << row.name << ": " << error.what();
        }
        for (std::size_t i = 0; i < fence; ++i) {
          ASSERT_EQ(to[i], std::byte{0xEE}) << row.name;
          ASSERT_EQ(to[to.size() - 1 - i], std::byte{0xEE}) << row.name;
        }
      }
    }
  }
  EXPECT_GT(refused, quick() ? 125U : 1000U);
}

// A list of events does not say how long the field was; all others see it.
TEST(Damage, AnotherFieldsBytesAreRefused) {
  for (const CodecRow& row : codecs()) {
    if (row.name == "events") continue;
    const auto codec = make_codec(row.name, Element::f32);
    const Field from = encoded(*codec, bytes_of(spikes<float>(500, 0.2, 1)));
    for (const std::size_t count : {0U, 400U, 491U, 509U, 600U}) {
      Field to(count * sizeof(float));
      EXPECT_THROW(codec->decode(from, to), Error) << row.name << " into " << count;
    }
  }
}

TEST(Damage, AnIndexBeyondTheFieldIsRefused) {
  const auto codec = make_codec("events", Element::f32);
  Field from = encoded(*codec, bytes_of(std::vector<float>{0, 0, 5, 0, 0}));
  ASSERT_EQ(from.size(), 12U);
  Field to(5 * sizeof(float));
  from[4] = std::byte{4};
  codec->decode(from, to);
  EXPECT_EQ(values_of<float>(to), (std::vector<float>{0, 0, 0, 0, 5}));
  from[4] = std::byte{5};
  EXPECT_THROW(codec->decode(from, to), Error);
}

}  // namespace
}  // namespace ebb::test::damage_test
