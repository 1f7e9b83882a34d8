// SPDX-License-Identifier: Apache-2.0
// What comes into a layer at one time step: numbers, or only those that are not 0.
#pragma once

#include <cstdint>

#include "ebb/core/bits.h"

namespace ebb {

// Samples beside each other: numbers, or spikes as bits. One of both is set.
template <class Number>
struct Rows {
  const Number* values = nullptr;
  const std::uint64_t* bits = nullptr;
  std::int64_t stride = 0;  // from sample to sample, in numbers or words
  Number scale = 1;         // times every spike; values come scaled
};

// The inputs that are not 0, sample by sample, in rising order.
template <class Number>
struct Lists {
  std::uint16_t* inputs = nullptr;  // [B,width]
  Number* values = nullptr;         // [B,width]; null: all are 1
  std::int32_t* counts = nullptr;   // [B]
  std::int64_t width = 0;
};

// Fills the lists of the samples [from,to) with the `inputs` numbers of each. With `all`, those that
// are 0 are listed too.
template <class Number>
void list_rows(const Rows<Number>& rows, std::int64_t from, std::int64_t to, std::int64_t inputs,
               bool all, const Lists<Number>& lists) {
  for (std::int64_t b = from; b < to; ++b) {
    std::uint16_t* const list = lists.inputs + b * lists.width;
    Number* const values = lists.values == nullptr ? nullptr : lists.values + b * lists.width;
    std::int32_t count = 0;
    const auto add = [&](std::int64_t i, Number value) {
      list[count] = static_cast<std::uint16_t>(i);
      if (values != nullptr) values[count] = value;
      ++count;
    };
    if (rows.bits != nullptr) {
      for (std::int64_t w = 0; w < words_of(inputs); ++w) {
        // Bits beyond the inputs, whatever they are, are nobody's.
        const auto here = static_cast<std::uint64_t>(inputs - w * 64);
        const std::uint64_t own = here < 64 ? (std::uint64_t{1} << here) - 1 : ~std::uint64_t{0};
        for_each_bit(rows.bits[b * rows.stride + w] & own, w * 64,
                     [&](std::int64_t i) { add(i, rows.scale); });
      }
    } else {
      for (std::int64_t i = 0; i < inputs; ++i) {
        // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): rows have bits or values
        const Number value = rows.values[b * rows.stride + i];
        if (all || value != Number{0}) add(i, value);
      }
    }
    lists.counts[b] = count;
  }
}

}  // namespace ebb
