// SPDX-License-Identifier: Apache-2.0
#include "ebb/codec/sign_bits.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "ebb/core/flush_to_zero.h"

namespace ebb {
namespace {

// Pieces of threads begin at whole bytes of bits, some pages apart.
constexpr std::int64_t kGrain = 4096;
// Flags first, as bytes that are 0 or 1; then eight of them to a byte: each part is a loop that
// compilers make vector code of.
constexpr std::int64_t kFlags = 512;

// The eight bytes of `flags`, each 0 or 1, as bits: byte i is moved to bit 56 + i.
std::uint8_t eight(const std::uint8_t* flags) {
  std::uint64_t word = 0;
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(&word, flags, 8);
  } else {
    for (int i = 0; i < 8; ++i) word |= std::uint64_t{flags[i]} << (8 * i);
  }
  return static_cast<std::uint8_t>((word * 0x0102040810204080U) >> 56);
}

template <class Number, class Rule>
void bits_of(const Number* x, std::int64_t from, std::int64_t to, const Rule& rule,
             std::uint8_t* bits) {
  const KeepSmallNumbers keep;
  std::uint8_t flags[kFlags];
  for (std::int64_t i = from; i < to; i += kFlags) {
    const std::int64_t here = std::min(kFlags, to - i);
    if (here < kFlags) std::fill_n(flags, kFlags, std::uint8_t{0});
    for (std::int64_t j = 0; j < here; ++j) flags[j] = rule(x[i + j]) ? 1 : 0;
    for (std::int64_t b = 0; b < sign_bytes(here); ++b) bits[i / 8 + b] = eight(flags + 8 * b);
  }
}

template <class Number>
using Word = std::conditional_t<sizeof(Number) == 4, std::uint32_t, std::uint64_t>;

// All ones where the bit of an element is set, else 0; for eight elements.
template <class Whole>
constexpr Whole mask(std::uint8_t byte, int i) {
  return (byte >> i & 1) != 0 ? ~Whole{0} : Whole{0};
}

// each(element, first of its byte's masks or of a shorter rest) for bytes of bits.
template <class Number, class Blocked>
void apply(const std::uint8_t* bits, const Number* gy, std::int64_t from, std::int64_t to,
           const Blocked& blocked, Number* gx) {
  using Whole = Word<Number>;
  const KeepSmallNumbers keep;
  std::int64_t i = from;
  for (; i + 8 <= to; i += 8) {
    const std::uint8_t byte = bits[i / 8];
    Whole words[8];
    Whole others[8];
    Number values[8];
    for (int j = 0; j < 8; ++j) values[j] = gy[i + j];
    for (int j = 0; j < 8; ++j) words[j] = std::bit_cast<Whole>(values[j]);
    for (int j = 0; j < 8; ++j) others[j] = std::bit_cast<Whole>(blocked(values[j]));
    for (int j = 0; j < 8; ++j) {
      const Whole through = mask<Whole>(byte, j);
      words[j] = (words[j] & through) | (others[j] & ~through);
    }
    for (int j = 0; j < 8; ++j) gx[i + j] = std::bit_cast<Number>(words[j]);
  }
  for (; i < to; ++i) gx[i] = (bits[i / 8] >> (i % 8) & 1) != 0 ? gy[i] : blocked(gy[i]);
}

}  // namespace

template <class Number>
void sign_bits(Workers& workers, std::int64_t count, const Number* x, Through through, Number low,
               Number high, std::uint8_t* bits) {
  workers.split(count, kGrain, [&](std::int64_t from, std::int64_t to) {
    switch (through) {
      case Through::positive_or_nan:
        return bits_of(x, from, to, [](Number v) { return !(v <= 0); }, bits);
      case Through::positive:
        return bits_of(x, from, to, [](Number v) { return v > 0; }, bits);
      case Through::between:
        return bits_of(x, from, to, [=](Number v) { return (v > low) & (v < high); }, bits);
    }
  });
}

template <class Number>
void masked(Workers& workers, std::int64_t count, const std::uint8_t* bits, const Number* gy,
            Number* gx) {
  workers.split(count, kGrain, [&](std::int64_t from, std::int64_t to) {
    apply(bits, gy, from, to, [](Number) { return Number{0}; }, gx);
  });
}

template <class Number>
void masked_slope(Workers& workers, std::int64_t count, const std::uint8_t* bits, const Number* gy,
                  Number slope, Number* gx) {
  workers.split(count, kGrain, [&](std::int64_t from, std::int64_t to) {
    apply(bits, gy, from, to, [=](Number v) { return v * slope; }, gx);
  });
}

template void sign_bits(Workers&, std::int64_t, const float*, Through, float, float, std::uint8_t*);
template void sign_bits(Workers&, std::int64_t, const double*, Through, double, double,
                        std::uint8_t*);
template void masked(Workers&, std::int64_t, const std::uint8_t*, const float*, float*);
template void masked(Workers&, std::int64_t, const std::uint8_t*, const double*, double*);
template void masked_slope(Workers&, std::int64_t, const std::uint8_t*, const float*, float,
                           float*);
template void masked_slope(Workers&, std::int64_t, const std::uint8_t*, const double*, double,
                           double*);

}  // namespace ebb
