// SPDX-License-Identifier: Apache-2.0
// One bit for each of many things, in words: thing i is bit i % 64 of word i / 64.
#pragma once

#include <bit>
#include <cstdint>

namespace ebb {

constexpr std::int64_t words_of(std::int64_t things) { return (things + 63) / 64; }

// Words from bytes that are 0 or 1.
inline void pack_bits(const std::uint8_t* bytes, std::int64_t things, std::uint64_t* words) {
  for (std::int64_t w = 0; w < words_of(things); ++w) {
    const std::int64_t here = things - w * 64 < 64 ? things - w * 64 : 64;
    std::uint64_t word = 0;
    for (std::int64_t i = 0; i < here; ++i) {
      word |= static_cast<std::uint64_t>(bytes[w * 64 + i]) << i;
    }
    words[w] = word;
  }
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
