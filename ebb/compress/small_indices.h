// SPDX-License-Identifier: Apache-2.0
// Small whole numbers in 4 or 8 bits each: where in its window a max-pool found its largest.
#pragma once

#include <cstdint>

#include "ebb/core/workers.h"

namespace ebb {

// Throws Error(invalid_argument) unless bits is 4 or 8.
std::int64_t small_bytes(std::int64_t count, int bits);

// Of 4-bit numbers the even element is the low half of its byte. Throws Error(invalid_argument) for
// an index that is not in [0, 2^bits); nothing is then known of `packed`. Index: std::int64_t or
// std::uint8_t.
template <class Index>
void pack_small(Workers& workers, std::int64_t count, const Index* indices, int bits,
                std::uint8_t* packed);

template <class Index>
void unpack_small(Workers& workers, std::int64_t count, const std::uint8_t* packed, int bits,
                  Index* indices);

}  // namespace ebb
