// SPDX-License-Identifier: Apache-2.0
#include "ebb/compress/sign_bits.h"

#include <array>
#include <bit>
#include <type_traits>

#include "ebb/core/flush_to_zero.h"

namespace ebb {
namespace {

// Pieces of threads begin at whole bytes of bits, some pages apart.
constexpr std::int64_t kGrain = 4096;
// Flags first, as bytes that are 0 or 1; then neighbours are joined three times: each a loop that
// compilers make vector code of.
constexpr std::int64_t kFlags = 512;

// Each byte has `shift` bits; half as many have twice as many.
template <int shift>
void join(const std::uint8_t* __restrict from, std::int64_t count, std::uint8_t* __restrict to) {
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = static_cast<std::uint8_t>(from[2 * i] | from[2 * i + 1] << shift);
  }
}

// Whether an element passes; or, with `flip`, whether it is held back: what is not at most 0 takes
// twice as many instructions to find as what is.
template <bool flip, class Rule>
struct Test {
  Rule rule;
};

// `Here` is a constant for all but the last piece, so that the loop needs no remainder.
template <class Number, bool flip, class Rule, class Here>
void piece_of_bits(const Number* x, Here here, const Test<flip, Rule>& test, std::uint8_t* bits) {
  std::uint8_t flags[kFlags];
  for (std::int64_t i = 0; i < here; ++i) flags[i] = test.rule(x[i]) ? 1 : 0;
  for (std::int64_t i = here; i % 8 != 0; ++i) flags[i] = flip ? 1 : 0;
  std::uint8_t pairs[kFlags / 2];
  std::uint8_t fours[kFlags / 4];
  join<1>(flags, sign_bytes(here) * 4, pairs);
  join<2>(pairs, sign_bytes(here) * 2, fours);
  join<4>(fours, sign_bytes(here), bits);
  if constexpr (flip) {
    for (std::int64_t b = 0; b < sign_bytes(here); ++b)
      bits[b] = static_cast<std::uint8_t>(~bits[b]);
  }
}

template <class Number, bool flip, class Rule>
void bits_of(const Number* x, std::int64_t from, std::int64_t to, const Test<flip, Rule>& test,
             std::uint8_t* bits) {
  const KeepSmallNumbers keep;
  constexpr std::integral_constant<std::int64_t, kFlags> all;
  std::int64_t i = from;
  for (; i + kFlags <= to; i += kFlags) piece_of_bits(x + i, all, test, bits + i / 8);
  if (i < to) piece_of_bits(x + i, to - i, test, bits + i / 8);
}

template <class Number>
using Word = std::conditional_t<sizeof(Number) == 4, std::uint32_t, std::uint64_t>;

constexpr std::int64_t kMasks = 32;

// 1 << i, as a table: not every machine shifts each lane by its own count.
template <class Whole>
constexpr std::array<Whole, kMasks> kBit = [] {
  std::array<Whole, kMasks> bit{};
  for (std::size_t i = 0; i < kMasks; ++i) bit[i] = Whole{1} << i;
  return bit;
}();

// gx = bit ? gy : blocked(gy), as whole numbers, so that what passes passes unchanged.
template <class Number, class Blocked>
void apply(const std::uint8_t* bits, const Number* gy, std::int64_t from, std::int64_t to,
           const Blocked& blocked, Number* gx) {
  using Whole = Word<Number>;
  const KeepSmallNumbers keep;
  std::int64_t i = from;
  for (; i + kMasks <= to; i += kMasks) {
    const std::uint8_t* const four = bits + i / 8;
    const Whole word = four[0] | Whole{four[1]} << 8 | Whole{four[2]} << 16 | Whole{four[3]} << 24;
    for (std::int64_t j = 0; j < kMasks; ++j) {
      const Number value = gy[i + j];
      const Whole other = std::bit_cast<Whole>(blocked(value));
      const Whole through =
          (word & kBit<Whole>[static_cast<std::size_t>(j)]) != 0 ? ~Whole{0} : Whole{0};
      gx[i + j] =
          std::bit_cast<Number>((std::bit_cast<Whole>(value) & through) | (other & ~through));
    }
  }
  for (; i < to; ++i) gx[i] = (bits[i / 8] >> (i % 8) & 1) != 0 ? gy[i] : blocked(gy[i]);
}

}  // namespace

template <class Number>
void sign_bits(Workers& workers, std::int64_t count, const Number* x, Through through, Number low,
               Number high, std::uint8_t* bits) {
  workers.split(count, kGrain, [&](std::int64_t from, std::int64_t to) {
    const auto held_back = [](Number v) { return v <= 0; };
    const auto positive = [](Number v) { return v > 0; };
    const auto between = [=](Number v) { return (v > low) & (v < high); };
    switch (through) {
      case Through::positive_or_nan:
        return bits_of(x, from, to, Test<true, decltype(held_back)>{held_back}, bits);
      case Through::positive:
        return bits_of(x, from, to, Test<false, decltype(positive)>{positive}, bits);
      case Through::between:
        return bits_of(x, from, to, Test<false, decltype(between)>{between}, bits);
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
