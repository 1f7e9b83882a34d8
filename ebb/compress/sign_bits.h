// SPDX-License-Identifier: Apache-2.0
// Where an activation lets its gradient through, one bit for each element: what is left of the
// input of a ReLU and its kin. Element i is bit i % 8 of byte i / 8; bits beyond the last are 0.
#pragma once

#include <cstdint>

#include "ebb/core/workers.h"

namespace ebb {

// Which elements have their bit set; as PyTorch's derivatives do, NaN included.
enum class Through {
  positive_or_nan,  // !(x <= 0): ReLU
  positive,         // x > 0: leaky ReLU
  between,          // low < x < high: ReLU6, Hardtanh; NaN is outside
};

constexpr std::int64_t sign_bytes(std::int64_t count) { return (count + 7) / 8; }

// bits[sign_bytes(count)]; `low` and `high` are read for `between` alone.
template <class Number>
void sign_bits(Workers& workers, std::int64_t count, const Number* x, Through through, Number low,
               Number high, std::uint8_t* bits);

// gx = bit ? gy : 0. gx may be gy.
template <class Number>
void masked(Workers& workers, std::int64_t count, const std::uint8_t* bits, const Number* gy,
            Number* gx);

// gx = bit ? gy : gy * slope. gx may be gy.
template <class Number>
void masked_slope(Workers& workers, std::int64_t count, const std::uint8_t* bits, const Number* gy,
                  Number slope, Number* gx);

}  // namespace ebb
