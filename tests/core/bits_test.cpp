// SPDX-License-Identifier: Apache-2.0
#include "ebb/core/bits.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace ebb {
namespace {

std::vector<std::uint8_t> drawn(std::size_t count) {
  std::vector<std::uint8_t> bytes(count);
  std::uint32_t number = 7;
  for (std::uint8_t& byte : bytes) {
    number = number * 1664525 + 1013904223;
    byte = static_cast<std::uint8_t>(number >> 31);
  }
  return bytes;
}

TEST(Bits, OfAnyNumberOfThingsComeBack) {
  for (const std::int64_t things : {1, 7, 8, 9, 63, 64, 65, 100, 128, 200}) {
    const std::vector<std::uint8_t> bytes = drawn(static_cast<std::size_t>(things));
    std::vector<std::uint64_t> words(static_cast<std::size_t>(words_of(things)), ~std::uint64_t{0});
    pack_bits(bytes.data(), things, words.data());
    for (std::int64_t i = 0; i < things; ++i) {
      ASSERT_EQ(words[static_cast<std::size_t>(i / 64)] >> (i % 64) & 1,
                bytes[static_cast<std::size_t>(i)])
          << i << " of " << things;
    }
    // Places beyond the last thing are 0 in words, and bytes there stay what they were.
    EXPECT_EQ(things % 64 == 0 ? 0 : words.back() >> (things % 64), 0U) << things;
    std::vector<std::uint8_t> back(bytes.size() + 8, 9);
    unpack_bits(words.data(), things, back.data());
    for (std::size_t i = 0; i < back.size(); ++i) {
      ASSERT_EQ(back[i], i < bytes.size() ? bytes[i] : 9) << i << " of " << things;
    }
  }
}

}  // namespace
}  // namespace ebb
