// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/platform.h"

#include <algorithm>
#include <cmath>

#include "ebb/core/error.h"
#include "ebb/core/words.h"

namespace ebb {
namespace {

void check_rate(const Tier& tier, const char* name, double rate) {
  if (!(rate > 0)) {
    fail(ErrorCode::invalid_argument, "tier ", tier.name, ": ", name, " is ", rate,
         " bytes/s; it must be above 0");
  }
}

void check_latency(const Tier& tier, const char* name, double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e15) {
    fail(ErrorCode::invalid_argument, "tier ", tier.name, ": ", name, " is ", seconds,
         " seconds; it must be a number from 0 to 1e15");
  }
}

}  // namespace

void check_tier_name(std::string_view what, std::string_view name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto is_part = [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
  };
  const bool fine =
      !name.empty() && is_letter(name.front()) && std::all_of(name.begin(), name.end(), is_part);
  if (!fine || name == "work" || name == "fast") {
    fail(ErrorCode::invalid_argument, what, " is named '", shown(name),
         "'; a name begins with a letter, is made of letters, digits, '_', '-' and '.', and is not "
         "'work' or 'fast'");
  }
}

void check_platform(const Platform& platform) {
  if (platform.fast < 0) {
    fail(ErrorCode::invalid_argument, "platform: fast is ", platform.fast,
         " bytes; it must be 0 or more");
  }
  if (!(platform.copy_rate > 0)) {
    fail(ErrorCode::invalid_argument, "platform: copy is ", platform.copy_rate,
         " bytes/s; it must be above 0");
  }
  if (platform.tiers.size() > 30) {
    fail(ErrorCode::invalid_argument, "platform: ", platform.tiers.size(),
         " tiers; at most 30 are allowed");
  }
  for (std::size_t i = 0; i < platform.tiers.size(); ++i) {
    const Tier& tier = platform.tiers[i];
    check_tier_name("platform: tier " + std::to_string(i), tier.name);
    for (std::size_t j = 0; j < i; ++j) {
      if (platform.tiers[j].name == tier.name) {
        fail(ErrorCode::invalid_argument, "platform: two tiers are named '", tier.name, "'");
      }
    }
    if (tier.capacity < 0) {
      fail(ErrorCode::invalid_argument, "tier ", tier.name, ": capacity is ", tier.capacity,
           " bytes; it must be 0 or more");
    }
    check_rate(tier, "write", tier.write_rate);
    check_rate(tier, "read", tier.read_rate);
    check_latency(tier, "write latency", tier.write_latency);
    check_latency(tier, "read latency", tier.read_latency);
  }
}

}  // namespace ebb
