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

// The Step's sizes as a run books them, with `seconds` for the costs: all alike for uniform steps.
Chain chain_of(const Step& step, bool has_tiers, std::int64_t steps, const Chain* seconds);

}  // namespace ebb
