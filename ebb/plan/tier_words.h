// SPDX-License-Identifier: Apache-2.0
// A slow memory in one word, "disk:capacity=4GiB,write=1GB/s,read=2GB/s": how such a word is made, which
// tiers of this machine share, and what it says of a tier to plan for.
//
// `what` is how the caller calls the word ("tier", "--tier") and opens every error.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/plan/chain.h"
#include "ebb/plan/platform.h"

namespace ebb {

// key or key=value
struct TierPart {
  std::string key;
  std::optional<std::string> value = {};

  std::string text() const { return value ? key + "=" + *value : key; }
};

struct TierWord {
  std::string name;
  std::vector<TierPart> parts;
};

// NAME[:part,...]. NAME begins with a letter and is made of letters, digits, '_', '-' and '.'; no
// key is there twice. Which keys there are is the reader's business.
TierWord split_tier(std::string_view what, std::string_view word);

// The keys of a tier to plan for.
std::span<const std::string_view> planned_tier_keys();

// slots=K | capacity=BYTES; write=BYTES/s | write_time=s; read=BYTES/s | read_time=s; latency=s;
// duplex=yes|no. A slot is a state of the chain. write_time and read_time are the seconds of one
// transfer whatever its size; latency is added to both directions. Left out: unlimited capacity, no
// time, duplex=yes. Throws Error(invalid_argument) that names the part, its value and what is
// allowed.
Tier planned_tier(std::string_view what, const TierWord& word, const Chain& chain);

// Bytes of a state where all of the chain have the same; `what` counts them.
Bytes state_of_all(std::string_view what, const Chain& chain);

}  // namespace ebb
