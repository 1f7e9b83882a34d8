// SPDX-License-Identifier: Apache-2.0
#include "ebb/core/checksum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string_view>
#include <vector>

namespace ebb::test::checksum_test {
namespace {

std::uint32_t crc_of(std::string_view text) { return crc32c(std::as_bytes(std::span(text))); }

// RFC 3720, appendix B.4, and the check value every catalogue names.
TEST(Checksum, PublishedValues) {
  EXPECT_EQ(crc_of("123456789"), 0xE3069283U);
  EXPECT_EQ(crc_of(""), 0U);
  std::vector<std::byte> bytes(32, std::byte{0});
  EXPECT_EQ(crc32c(bytes), 0x8A9136AAU);
  std::ranges::fill(bytes, std::byte{0xFF});
  EXPECT_EQ(crc32c(bytes), 0x62A8AB43U);
  for (std::size_t i = 0; i < 32; ++i) bytes[i] = static_cast<std::byte>(i);
  EXPECT_EQ(crc32c(bytes), 0x46DD794EU);
}

TEST(Checksum, InstructionAndTableAgreeAndPartsJoin) {
  std::mt19937 random(1);
  std::vector<std::byte> bytes(40'000);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  for (const std::size_t size :
       {0, 1, 7, 8, 9, 63, 64, 65, 1000, 4096, 12'287, 12'288, 12'289, 39'990}) {
    for (std::size_t offset = 0; offset < 9; ++offset) {
      const auto part = std::span<const std::byte>(bytes).subspan(offset, size);
      const std::uint32_t all = crc32c(part);
      EXPECT_EQ(all, crc32c_plain(part)) << size << " bytes at " << offset;
      EXPECT_EQ(all, crc32c(part.subspan(size / 3), crc32c(part.first(size / 3))));
    }
  }
}

TEST(Checksum, EveryFlippedBitShows) {
  std::vector<std::byte> bytes(100, std::byte{0x5A});
  const std::uint32_t whole = crc32c(bytes);
  for (std::size_t bit = 0; bit < 800; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_NE(crc32c(bytes), whole);
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  }
}

}  // namespace
}  // namespace ebb::test::checksum_test
