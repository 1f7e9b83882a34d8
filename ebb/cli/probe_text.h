// SPDX-License-Identifier: Apache-2.0
// What `ebb probe` found, for people and as JSON.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "ebb/cli/tier_option.h"
#include "ebb/run/profile.h"

namespace ebb {

struct ProbeAnswer {
  std::int64_t sweeps;
  const Profile& found;
  const std::vector<RealTier>& tiers;
};

void write_probe(const ProbeAnswer& answer, std::ostream& out);

// {"steps","sweeps","step":{...},"call","tiers":[{"name","kind",...,"capacity","write","read",
// "write_latency","read_latency","duplex","write_state","read_state"},...],"chain","platform"}: the
// last two as `ebb plan` reads them; capacity null: no limit.
std::string to_json(const ProbeAnswer& answer);

}  // namespace ebb
