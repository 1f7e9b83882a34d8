// SPDX-License-Identifier: Apache-2.0
// The value of --tier: a slow memory in one word. For `ebb plan` on paper, by its speeds; for commands
// that measure a real one, by what it is.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/core/bytes.h"
#include "ebb/plan/platform.h"
#include "ebb/store/real_tier.h"

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

// NAME:WORD[=VALUE] for a row of tier_kinds(), with ,capacity=BYTES and the row's own keys: for a
// file ,engine=uring|threads|any and ,direct=yes|no. Left out: the capacity is what is free there
// now, no limit for null; engine any; direct yes. A directory has no comma in its name; whether it
// exists is found by opening the tier. Throws Error(invalid_argument) like parse_tier.
RealTier parse_real_tier(std::string_view word);
// Several, with different names.
std::vector<RealTier> parse_real_tiers(std::span<const std::string> words);

// For help: a line or more on each kind of tier, and the sentence that names them all.
std::string real_tier_lines();
std::string real_tier_sentence();

// The word for a file in the directory for temporary files: "disk:file=/tmp".
std::string temporary_tier();

}  // namespace ebb
