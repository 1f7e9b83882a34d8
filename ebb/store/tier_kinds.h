// SPDX-License-Identifier: Apache-2.0
// The table of tiers of this machine: the word that names one, how it is made and what is said of it.
// Readers, help texts, answers and tests follow from it.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ebb/core/bytes.h"
#include "ebb/core/json.h"
#include "ebb/store/real_tier.h"

namespace ebb {

// A tier as someone names it: NAME:WORD[=VALUE][,capacity=BYTES][,KEY=VALUE...].
struct TierWords {
  std::string name;
  std::string value = {};  // of a word that does not stand alone
  std::optional<Bytes> capacity = {};
  std::map<std::string, std::string, std::less<>> keys = {};  // those of the row that are given
};

// A key that one kind of tier has beside its capacity.
struct TierKey {
  std::string_view name;
  std::string_view values;  // as help shows them
  std::string_view what;
};

struct TierKind {
  std::string_view word;
  std::string_view value;  // what stands behind word=; empty: the word stands alone
  std::string_view what;   // one line
  std::span<const TierKey> keys;
  bool is_memory;  // what lies in it takes host memory
  bool keeps;      // false: gradients are wrong
  RealTier (*make)(const TierWords& words);
  // How it works here, in a line, and what there is to add as members of an object. May open it:
  // throws Error(io).
  std::string (*how)(const RealTier& tier);
  Json (*facts)(const RealTier& tier);

  // "file=DIRECTORY"
  std::string usage() const;
};

std::span<const TierKind> tier_kinds();
// Null if there is none.
const TierKind* find_tier_kind(std::string_view word);

// A tier of that kind. Throws Error(invalid_argument) that begins "tier NAME: ".
RealTier make_tier(const TierKind& kind, const TierWords& words);

// "memory, file=DIRECTORY or null"; `before` stands before each.
std::string tier_usages(std::string_view last_link, std::string_view before = "");

}  // namespace ebb
