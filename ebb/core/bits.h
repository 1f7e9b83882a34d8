// SPDX-License-Identifier: Apache-2.0
// One bit for each of many things, in words: thing i is bit i % 64 of word i / 64.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace ebb {

constexpr std::int64_t words_of(std::int64_t things) { return (things + 63) / 64; }

// Eight bits are eight bytes of a word, the lowest bit the first byte.
static_assert(std::endian::native == std::endian::little);

// Words from bytes that are 0 or 1.
inline void pack_bits(const std::uint8_t* bytes, std::int64_t things, std::uint64_t* words) {
  for (std::int64_t w = 0; w < words_of(things); ++w) {
    const std::int64_t here = things - w * 64 < 64 ? things - w * 64 : 64;
    std::uint64_t word = 0;
    std::int64_t i = 0;
    for (; i + 8 <= here; i += 8) {
      std::uint64_t eight = 0;
      std::memcpy(&eight, bytes + w * 64 + i, 8);
      // Byte k's bit goes to place 56 + k, and nothing else does.
      word |= (eight * 0x0102040810204080ULL >> 56) << i;
    }
    for (; i < here; ++i) word |= static_cast<std::uint64_t>(bytes[w * 64 + i]) << i;
    words[w] = word;
  }
}

// Bytes that are 0 or 1 from words.
inline void unpack_bits(const std::uint64_t* words, std::int64_t things, std::uint8_t* bytes) {
  std::int64_t i = 0;
  for (; i + 8 <= things; i += 8) {
    const std::uint64_t eight = words[i / 64] >> (i % 64) & 0xFF;
    // Byte k of the product keeps bit k; adding 0x7F brings what is there to the top bit.
    const std::uint64_t kept = eight * 0x0101010101010101ULL & 0x8040201008040201ULL;
    const std::uint64_t ones = (kept + 0x7F7F7F7F7F7F7F7FULL) >> 7 & 0x0101010101010101ULL;
    std::memcpy(bytes + i, &ones, 8);
  }
  for (; i < things; ++i) bytes[i] = static_cast<std::uint8_t>(words[i / 64] >> (i % 64) & 1);
}

// Calls each(i) for every bit that is set, in rising order.
template <class Each>
void for_each_bit(std::uint64_t word, std::int64_t first, Each each) {
  while (word != 0) {
    each(first + std::countr_zero(word));
    word &= word - 1;
  }
}

}  // namespace ebb
