// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/tier_option.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

#include "ebb/core/error.h"
#include "ebb/core/words.h"
#include "ebb/plan/tier_words.h"

namespace ebb {
namespace {

enum Key : std::size_t { capacity, memory, file, null, engine, direct, key_count };
constexpr std::array<std::string_view, key_count> kKeys = {"capacity", "memory", "file",
                                                           "null",     "engine", "direct"};
constexpr std::string_view kOption = "--tier";

bool stands_alone(Key key) { return key == memory || key == null; }

using Values = std::array<std::optional<std::string>, key_count>;

std::optional<Key> key_named(std::string_view name) {
  const auto known = std::find(kKeys.begin(), kKeys.end(), name);
  if (known == kKeys.end()) return std::nullopt;
  return static_cast<Key>(known - kKeys.begin());
}

std::string option_name(std::string_view tier, Key key) {
  return std::string(kOption).append(" ").append(tier).append(": ").append(kKeys[key]);
}

// The parts by key, after checking that each has its place here.
Values values_of(const TierWord& word) {
  Values values;
  for (const TierPart& part : word.parts) {
    const std::optional<Key> key = key_named(part.key);
    const auto planned = planned_tier_keys();
    if (!key && std::find(planned.begin(), planned.end(), part.key) != planned.end()) {
      fail(ErrorCode::invalid_argument, kOption, " ", word.name, ": ", part.key,
           part.key == "slots" ? " counts states; give capacity=BYTES here"
                               : " is not given here: it is measured");
    }
    if (!key || part.value.has_value() == stands_alone(*key)) {
      fail(ErrorCode::invalid_argument, kOption, " ", word.name, ": cannot read '",
           shown(part.text()),
           "'; write memory, file=DIRECTORY or null, and key=value with the keys capacity, engine, "
           "direct");
    }
    values[*key] = part.value.value_or("");
  }
  return values;
}

// Left out: yes.
bool yes_or_no(std::string_view name, Key key, const Values& values) {
  const std::string word = values[key].value_or("yes");
  if (word == "yes" || word == "no") return word == "yes";
  fail(ErrorCode::invalid_argument, option_name(name, key), " is '", shown(word),
       "'; it must be yes or no");
}

FileEngine engine_of(std::string_view name, const Values& values) {
  const std::string word = values[engine].value_or("any");
  if (word == "any") return FileEngine::any;
  if (word == "uring") return FileEngine::uring;
  if (word == "threads") return FileEngine::threads;
  fail(ErrorCode::invalid_argument, option_name(name, engine), " is '", shown(word),
       "'; it must be uring, threads or any");
}

Bytes free_on_disk(const std::string& directory) {
  std::error_code failed;
  const auto space = std::filesystem::space(directory, failed);
  // What is wrong with the directory is found when the tier is opened.
  if (failed || space.available > static_cast<std::uintmax_t>(kUnlimited)) return kUnlimited;
  return static_cast<Bytes>(space.available);
}

Bytes free_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream text(line);
    std::string key;
    Bytes kib = 0;
    if (text >> key >> kib && key == "MemAvailable:") return scale_bytes(kib, 1024);
  }
  return kUnlimited;
}

}  // namespace

void refuse_real_keys(std::string_view text) {
  const TierWord word = split_tier(kOption, text);
  for (const TierPart& part : word.parts) {
    const std::optional<Key> key = key_named(part.key);
    if (!key || *key == capacity) continue;
    fail(ErrorCode::invalid_argument, kOption, " ", word.name, ": ", part.key,
         " is for tiers of this machine, which ebb probe and ebb bench measure; ebb plan takes "
         "their speeds: write=, read=, latency=, or --platform FILE from ebb probe --platform-out "
         "FILE");
  }
}

RealTier parse_real_tier(std::string_view text) {
  const TierWord word = split_tier(kOption, text);
  const std::string& name = word.name;
  const Values values = values_of(word);
  if (values[memory].has_value() + values[file].has_value() + values[null].has_value() != 1) {
    fail(ErrorCode::invalid_argument, "--tier ", name,
         ": say what it is, one of memory, file=DIRECTORY and null, such as ", name,
         ":file=/tmp,capacity=8GiB");
  }
  if (!values[file] && (values[engine] || values[direct])) {
    fail(ErrorCode::invalid_argument, "--tier ", name, ": ",
         kKeys[values[engine] ? engine : direct], " is for file=DIRECTORY");
  }
  std::optional<Bytes> room;
  if (const auto& value = values[capacity]) {
    room = read_size(option_name(name, capacity), *value, 0, kUnlimited);
  }
  RealTier real;
  if (values[file]) {
    real.kind = RealTier::Kind::file;
    real.directory = *values[file];
    real.options = {.engine = engine_of(name, values), .direct = yes_or_no(name, direct, values)};
    if (real.directory.empty()) {
      fail(ErrorCode::invalid_argument, option_name(name, file),
           " is ''; name a directory that exists");
    }
    const Bytes bytes = room.value_or(free_on_disk(real.directory));
    real.tier = file_tier(real.directory, bytes, name, real.options);
  } else if (values[memory]) {
    real.kind = RealTier::Kind::memory;
    real.tier = memory_tier(room.value_or(free_memory()), name);
  } else {
    real.kind = RealTier::Kind::null;
    real.tier = null_tier(name);
    real.tier.capacity = room.value_or(kUnlimited);
  }
  return real;
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

std::string temporary_tier() {
  std::error_code failed;
  const auto directory = std::filesystem::temp_directory_path(failed);
  return "disk:file=" + (failed ? std::string("/tmp") : directory.string());
}

}  // namespace ebb
