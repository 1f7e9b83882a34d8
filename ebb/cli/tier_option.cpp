// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/tier_option.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>

#include "ebb/core/error.h"
#include "ebb/core/words.h"
#include "ebb/plan/tier_words.h"
#include "ebb/store/tier_kinds.h"

namespace ebb {
namespace {

constexpr std::string_view kOption = "--tier", kCapacity = "capacity";

// The kind of tier that has this key beside its capacity; null if none has.
const TierKind* owner_of(std::string_view key) {
  for (const TierKind& kind : tier_kinds()) {
    if (std::ranges::count(kind.keys, key, &TierKey::name) > 0) return &kind;
  }
  return nullptr;
}

[[noreturn]] void refuse(const TierWord& word, const TierPart& part) {
  const auto planned = planned_tier_keys();
  if (part.key != kCapacity && std::ranges::count(planned, part.key) > 0) {
    fail(ErrorCode::invalid_argument, kOption, " ", word.name, ": ", part.key,
         part.key == "slots" ? " counts states; give capacity=BYTES here"
                             : " is not given here: it is measured");
  }
  std::string keys(kCapacity);
  for (const TierKind& kind : tier_kinds()) {
    for (const TierKey& key : kind.keys) keys.append(", ").append(key.name);
  }
  fail(ErrorCode::invalid_argument, kOption, " ", word.name, ": cannot read '", shown(part.text()),
       "'; write ", tier_usages("or"), ", and key=value with the keys ", keys);
}

}  // namespace

void refuse_real_keys(std::string_view text) {
  const TierWord word = split_tier(kOption, text);
  for (const TierPart& part : word.parts) {
    if (find_tier_kind(part.key) == nullptr && owner_of(part.key) == nullptr) continue;
    fail(ErrorCode::invalid_argument, kOption, " ", word.name, ": ", part.key,
         " is for tiers of this machine, which ebb probe and ebb bench measure; ebb plan takes "
         "their speeds: write=, read=, latency=, or --platform FILE from ebb probe --platform-out "
         "FILE");
  }
}

RealTier parse_real_tier(std::string_view text) {
  const TierWord word = split_tier(kOption, text);
  TierWords words{.name = word.name};
  std::vector<const TierKind*> kinds;
  for (const TierPart& part : word.parts) {
    const TierKind* const kind = find_tier_kind(part.key);
    if (kind != nullptr && part.value.has_value() != kind->value.empty()) {
      kinds.push_back(kind);
      words.value = part.value.value_or("");
    } else if (part.key == kCapacity && part.value) {
      words.capacity =
          read_size(std::string(kOption).append(" ").append(word.name).append(": capacity"),
                    *part.value, 0, kUnlimited);
    } else if (owner_of(part.key) != nullptr && part.value) {
      words.keys.emplace(part.key, *part.value);
    } else {
      refuse(word, part);
    }
  }
  if (kinds.size() != 1) {
    fail(ErrorCode::invalid_argument, kOption, " ", word.name, ": say what it is, one of ",
         tier_usages("and"), ", such as ", word.name, ":file=/tmp,capacity=8GiB");
  }
  for (const auto& [key, value] : words.keys) {
    const TierKind& owner = *owner_of(key);
    if (&owner != kinds[0]) {
      fail(ErrorCode::invalid_argument, kOption, " ", word.name, ": ", key, " is for ",
           owner.usage());
    }
  }
  try {
    return make_tier(*kinds[0], words);
  } catch (const Error& error) {
    fail(error.code(), "--", error.what());
  }
}

std::vector<RealTier> parse_real_tiers(std::span<const std::string> words) {
  std::vector<RealTier> tiers;
  Platform platform;
  for (const std::string& word : words) {
    tiers.push_back(parse_real_tier(word));
    platform.tiers.push_back({.name = tiers.back().tier.name});
  }
  check_platform(platform);
  return tiers;
}

std::string real_tier_lines() {
  std::string lines;
  const auto add = [&lines](std::string text, std::string_view what) {
    constexpr std::size_t column = 40;
    text.resize(std::max(text.size() + 1, column), ' ');
    lines.append(text).append(what).append("\n");
  };
  for (const TierKind& kind : tier_kinds()) {
    add("  NAME:" + kind.usage() + "[,capacity=BYTES]", kind.what);
    for (const TierKey& key : kind.keys) {
      add("      [," + std::string(key.name) + "=" + std::string(key.values) + "]", key.what);
    }
  }
  return lines;
}

std::string real_tier_sentence() {
  return "--tier takes " + tier_usages("and", "NAME:") +
         "\nwith the keys that ebb probe --help names.\n";
}

std::string temporary_tier() {
  std::error_code failed;
  const auto directory = std::filesystem::temp_directory_path(failed);
  return "disk:file=" + (failed ? std::string("/tmp") : directory.string());
}

}  // namespace ebb
