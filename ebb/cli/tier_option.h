// SPDX-License-Identifier: Apache-2.0
// The value of --tier: a slow memory in one word.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "ebb/core/bytes.h"
#include "ebb/plan/platform.h"

namespace ebb {

struct TierOption {
  Tier tier;
  // Capacity counted in states; tier.capacity is then still open.
  std::optional<std::int64_t> slots;

  // The tier for a chain whose states have `state` bytes.
  Tier sized(Bytes state) const;
};

// NAME[:key=value,...] with the keys slots=K | capacity=BYTES; write=BYTES/s | write_time=s;
// read=BYTES/s | read_time=s; latency=s; duplex=yes|no. write_time and read_time are the seconds of
// one transfer whatever its size; latency is added to both directions. Left out: unlimited
// capacity, no time, duplex=yes. NAME is made of letters, digits, '_', '-' and
// '.'. Throws Error(invalid_argument) that names the part, its value and what is allowed.
TierOption parse_tier(std::string_view word);

}  // namespace ebb
