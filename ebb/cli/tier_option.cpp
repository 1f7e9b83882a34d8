// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/tier_option.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <limits>
#include <string>
#include <system_error>
#include <utility>

#include "ebb/cli/words.h"
#include "ebb/core/error.h"
#include "ebb/core/rate.h"
#include "ebb/store/tier_kinds.h"

namespace ebb {
namespace {

// Keys of a tier on paper; one of this machine has those of its row in tier_kinds().
enum Key : std::size_t {
  slots,
  capacity,
  write,
  write_time,
  read,
  read_time,
  latency,
  duplex,
  key_count
};
constexpr std::array<std::string_view, key_count> kKeys = {
    "slots", "capacity", "write", "write_time", "read", "read_time", "latency", "duplex"};

using Values = std::array<std::optional<std::string_view>, key_count>;

// "key=value" or "key".
struct Part {
  std::string_view text, key;
  std::optional<std::string_view> value;
};

std::string option_name(std::string_view tier, Key key) {
  return std::string("--tier ").append(tier).append(": ").append(kKeys[key]);
}

void check_name(std::string_view name) {
  const bool fine =
      !name.empty() && std::isalpha(static_cast<unsigned char>(name[0])) != 0 &&
      std::all_of(name.begin(), name.end(), [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
      });
  if (!fine || name == "work" || name == "fast") {
    fail(ErrorCode::invalid_argument, "--tier names a tier '", shown(name),
         "'; a name begins with a letter, is made of letters, digits, '_', '-' and '.', and is not "
         "'work' or 'fast'");
  }
}

[[noreturn]] void refuse_part(std::string_view name, const Part& part, const std::string& allowed,
                              std::span<const std::string_view> keys) {
  std::string names;
  for (const std::string_view key : keys) names.append(names.empty() ? "" : ", ").append(key);
  fail(ErrorCode::invalid_argument, "--tier ", name, ": cannot read '", shown(part.text),
       "'; write ", allowed, "key=value with the keys ", names);
}

// The kind of tier that has the key of its own.
const TierKind* owner_of(std::string_view key) {
  for (const TierKind& kind : tier_kinds()) {
    if (std::ranges::count(kind.keys, key, &TierKey::name) > 0) return &kind;
  }
  return nullptr;
}

// On paper.
void check_planned(std::string_view name, const Part& part) {
  if (find_tier_kind(part.key) != nullptr || owner_of(part.key) != nullptr) {
    fail(ErrorCode::invalid_argument, "--tier ", name, ": ", part.key,
         " is for tiers of this machine, which ebb probe and ebb bench measure; ebb plan takes "
         "their speeds: write=, read=, latency=, or --platform FILE from ebb probe --platform-out "
         "FILE");
  }
  if (std::ranges::count(kKeys, part.key) == 0 || !part.value) refuse_part(name, part, "", kKeys);
}

// Of this machine.
void check_real(std::string_view name, const Part& part) {
  const TierKind* const kind = find_tier_kind(part.key);
  if (kind != nullptr && part.value.has_value() != kind->value.empty()) return;
  const bool is_own = part.key == kKeys[capacity] || owner_of(part.key) != nullptr;
  if (is_own && part.value) return;
  if (!is_own && std::ranges::count(kKeys, part.key) > 0) {
    fail(ErrorCode::invalid_argument, "--tier ", name, ": ", part.key,
         part.key == kKeys[slots] ? " counts states; give capacity=BYTES here"
                                  : " is not given here: it is measured");
  }
  std::vector<std::string_view> keys{kKeys[capacity]};
  for (const TierKind& own : tier_kinds()) {
    for (const TierKey& key : own.keys) keys.push_back(key.name);
  }
  refuse_part(name, part, tier_usages("or") + ", and ", keys);
}

// Splits "key=value,key"; `check` refuses what has no place there.
std::vector<Part> split(std::string_view name, std::string_view rest,
                        void (*check)(std::string_view, const Part&)) {
  std::vector<Part> parts;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    Part part{rest.substr(0, comma), {}, {}};
    const std::size_t equals = part.text.find('=');
    part.key = part.text.substr(0, equals);
    if (equals != std::string_view::npos) part.value = part.text.substr(equals + 1);
    check(name, part);
    if (std::ranges::count(parts, part.key, &Part::key) > 0) {
      fail(ErrorCode::invalid_argument, "--tier ", name, ": ", part.key, " is given twice");
    }
    parts.push_back(part);
    if (comma + 1 == rest.size()) {
      fail(ErrorCode::invalid_argument, "--tier ", name, ": nothing follows the last comma");
    }
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return parts;
}

// NAME:rest
std::pair<std::string_view, std::vector<Part>> parsed(std::string_view word,
                                                      void (*check)(std::string_view,
                                                                    const Part&)) {
  const std::size_t colon = std::min(word.find(':'), word.size());
  const std::string_view name = word.substr(0, colon);
  check_name(name);
  return {name, split(name, word.substr(std::min(colon + 1, word.size())), check)};
}

void check_one_of(std::string_view name, const Values& values, Key a, Key b) {
  if (values[a] && values[b]) {
    fail(ErrorCode::invalid_argument, "--tier ", name, ": ", kKeys[a], " and ", kKeys[b],
         " say the same thing; give one of them");
  }
}

double rate_of(std::string_view name, Key key, const std::optional<std::string_view>& value) {
  if (!value) return std::numeric_limits<double>::infinity();
  try {
    return parse_rate(*value);
  } catch (const Error&) {
    fail(ErrorCode::invalid_argument, option_name(name, key), " is '", shown(*value),
         "'; it must be bytes a second above 0, such as 0.5, 2.5GB/s or unlimited");
  }
}

double seconds_of(std::string_view name, Key key, const std::optional<std::string_view>& value) {
  return value ? read_seconds(option_name(name, key), *value) : 0;
}

// Left out: yes.
bool yes_or_no(std::string_view name, Key key, const Values& values) {
  const std::string_view word = values[key].value_or("yes");
  if (word == "yes" || word == "no") return word == "yes";
  fail(ErrorCode::invalid_argument, option_name(name, key), " is '", shown(word),
       "'; it must be yes or no");
}

}  // namespace

Tier TierOption::sized(Bytes state) const {
  Tier result = tier;
  if (slots) result.capacity = scale_bytes(state, *slots);
  return result;
}

TierOption parse_tier(std::string_view word) {
  const auto [name, parts] = parsed(word, check_planned);
  Values values;
  for (const Part& part : parts) {
    values[static_cast<std::size_t>(std::ranges::find(kKeys, part.key) - kKeys.begin())] =
        part.value;
  }
  check_one_of(name, values, slots, capacity);
  check_one_of(name, values, write, write_time);
  check_one_of(name, values, read, read_time);

  TierOption option;
  option.tier.name = name;
  if (const auto& value = values[slots]) {
    option.slots = read_count(option_name(name, slots), *value, 0, 1'000'000'000'000);
  }
  if (const auto& value = values[capacity]) {
    option.tier.capacity = read_size(option_name(name, capacity), *value, 0, kUnlimited);
  }
  option.tier.write_rate = rate_of(name, write, values[write]);
  option.tier.read_rate = rate_of(name, read, values[read]);
  const double both = seconds_of(name, latency, values[latency]);
  option.tier.write_latency = both + seconds_of(name, write_time, values[write_time]);
  option.tier.read_latency = both + seconds_of(name, read_time, values[read_time]);
  option.tier.duplex = yes_or_no(name, duplex, values);
  return option;
}

RealTier parse_real_tier(std::string_view word) {
  const auto [name, parts] = parsed(word, check_real);
  TierWords words{.name = std::string(name)};
  std::vector<const TierKind*> kinds;
  for (const Part& part : parts) {
    const std::string value(part.value.value_or(""));
    if (const TierKind* const kind = find_tier_kind(part.key)) {
      kinds.push_back(kind);
      words.value = value;
    } else if (part.key == kKeys[capacity]) {
      words.capacity = read_size(option_name(name, capacity), value, 0, kUnlimited);
    } else {
      words.keys.emplace(part.key, value);
    }
  }
  if (kinds.size() != 1) {
    fail(ErrorCode::invalid_argument, "--tier ", name, ": say what it is, one of ",
         tier_usages("and"), ", such as ", name, ":file=/tmp,capacity=8GiB");
  }
  for (const auto& [key, value] : words.keys) {
    const TierKind& owner = *owner_of(key);
    if (&owner != kinds[0]) {
      fail(ErrorCode::invalid_argument, "--tier ", name, ": ", key, " is for ", owner.usage());
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
    constexpr std::size_t kColumn = 40;
    text.resize(std::max(text.size() + 1, kColumn), ' ');
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
