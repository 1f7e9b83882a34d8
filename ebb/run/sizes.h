// SPDX-License-Identifier: Apache-2.0
// How much room items take in a run's memory: their own bytes rounded up, so that every item is
// aligned for vector code and large ones for direct I/O.
#pragma once

#include "ebb/core/bytes.h"
#include "ebb/device/buffer.h"
#include "ebb/plan/chain.h"
#include "ebb/run/step.h"

namespace ebb {

inline constexpr Bytes kAlignment = 64;
// From here on rounding up to pages costs little.
inline constexpr Bytes kDirectItem = 16 * kPage;

constexpr Bytes rounded(Bytes bytes, Bytes to) {
  return bytes > kUnlimited - to ? kUnlimited : (bytes + to - 1) / to * to;
}
// All items of a run are multiples of this, so that each is aligned wherever it lies. `paged`: some
// may go to a file.
constexpr Bytes item_grain(Bytes largest, bool paged) {
  return paged && largest >= kDirectItem ? kPage : kAlignment;
}

// Throws Error(invalid_argument) unless step i has the sizes of step 0.
void check_alike(const Step& step, std::int64_t i);

// The Step's sizes as a run books them, with `seconds` for the costs: all alike for uniform steps, of
// which the first, the middle and the last are looked at. Throws Error(invalid_argument) for sizes that
// cannot be.
Chain chain_of(const Step& step, bool has_tiers, std::int64_t steps, const Chain* seconds);

// The first steps of a chain, all where there are no more; of a uniform one as many as asked for.
Chain first_steps(const Chain& chain, std::int64_t steps);

}  // namespace ebb
