// SPDX-License-Identifier: Apache-2.0
// A tier of this machine with what it is, for those who say so or count memory.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ebb/store/slow_tier.h"

namespace ebb {

struct TierKind;

struct RealTier {
  SlowTier tier;
  const TierKind* kind = nullptr;  // a row of tier_kinds()
  std::string directory = {};      // of a file
  FileOptions options = {};
};

inline std::vector<SlowTier> slow_tiers(std::span<const RealTier> tiers) {
  std::vector<SlowTier> all;
  for (const RealTier& real : tiers) all.push_back(real.tier);
  return all;
}

}  // namespace ebb
