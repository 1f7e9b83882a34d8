// SPDX-License-Identifier: Apache-2.0
// The value of --tier for commands that measure a tier of this machine: what it is, in one word. A tier
// to plan for is read by ebb/plan/tier_words.h.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/store/real_tier.h"

namespace ebb {

// A tier to plan for says no more than its speeds: refuses the word of a tier of this machine, and
// names the commands that take one.
void refuse_real_keys(std::string_view word);

// NAME:WORD[=VALUE] for a row of tier_kinds(), with ,capacity=BYTES and the row's own keys: for a
// file ,engine=uring|threads|any and ,direct=yes|no. Left out: the capacity is what is free there
// now, no limit for null; engine any; direct yes. A directory has no comma in its name; whether it
// exists is found by opening the tier. Throws Error(invalid_argument) that
// names the part, its value and what is allowed.
RealTier parse_real_tier(std::string_view word);
// Several, with different names.
std::vector<RealTier> parse_real_tiers(std::span<const std::string> words);

// For help: a line or more on each kind of tier, and the sentence that names them all.
std::string real_tier_lines();
std::string real_tier_sentence();

// The word for a file in the directory for temporary files: "disk:file=/tmp".
std::string temporary_tier();

}  // namespace ebb
