// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/tier_option.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

#include "ebb/cli/words.h"
#include "ebb/core/error.h"
#include "ebb/core/rate.h"

namespace ebb {
namespace {

enum Key : std::size_t {
  slots,
  capacity,
  write,
  write_time,
  read,
  read_time,
  latency,
  duplex,
  memory,
  file,
  null,
  engine,
  direct,
  key_count
};
constexpr std::array<std::string_view, key_count> kKeys = {
    "slots",  "capacity", "write", "write_time", "read",   "read_time", "latency",
    "duplex", "memory",   "file",  "null",       "engine", "direct"};

// Which of them a tier on paper and a tier of this machine have.
bool is_planned(Key key) { return key <= duplex; }
bool is_real(Key key) { return key == capacity || key >= memory; }
bool stands_alone(Key key) { return key == memory || key == null; }

using Values = std::array<std::optional<std::string_view>, key_count>;

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

[[noreturn]] void refuse_part(std::string_view name, std::string_view part, bool real) {
  fail(ErrorCode::invalid_argument, "--tier ", name, ": cannot read '", shown(part), "'; write ",
       real ? "memory, file=DIRECTORY or null, and key=value with the keys capacity, engine, direct"
            : "key=value with the keys slots, capacity, write, write_time, read, read_time, "
              "latency, duplex");
}

[[noreturn]] void refuse_real(std::string_view name, Key key) {
  fail(ErrorCode::invalid_argument, "--tier ", name, ": ", kKeys[key],
       " is for tiers of this machine, which ebb probe and ebb bench measure; ebb plan takes their "
       "speeds: write=, read=, latency=, or --platform FILE from ebb probe --platform-out FILE");
}

[[noreturn]] void refuse_planned(std::string_view name, Key key) {
  fail(ErrorCode::invalid_argument, "--tier ", name, ": ", kKeys[key],
       key == slots ? " counts states; give capacity=BYTES here"
                    : " is not given here: it is measured");
}

// Splits "key=value,key" after checking that each key is known, has its place here and is given
// once.
Values split(std::string_view name, std::string_view rest, bool real) {
  Values values;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view part = rest.substr(0, comma);
    const std::size_t equals = std::min(part.find('='), part.size());
    const auto known = std::find(kKeys.begin(), kKeys.end(), part.substr(0, equals));
    if (known == kKeys.end()) refuse_part(name, part, real);
    const auto key = static_cast<Key>(known - kKeys.begin());
    if (!real && !is_planned(key)) refuse_real(name, key);
    if (real && !is_real(key)) refuse_planned(name, key);
    if ((equals == part.size()) != stands_alone(key)) refuse_part(name, part, real);
    auto& value = values[key];
    if (value) fail(ErrorCode::invalid_argument, "--tier ", name, ": ", *known, " is given twice");
    value = part.substr(std::min(equals + 1, part.size()));
    if (comma + 1 == rest.size()) {
      fail(ErrorCode::invalid_argument, "--tier ", name, ": nothing follows the last comma");
    }
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return values;
}

// NAME:rest
std::pair<std::string_view, Values> parsed(std::string_view word, bool real) {
  const std::size_t colon = std::min(word.find(':'), word.size());
  const std::string_view name = word.substr(0, colon);
  check_name(name);
  return {name, split(name, word.substr(std::min(colon + 1, word.size())), real)};
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

FileEngine engine_of(std::string_view name, const Values& values) {
  const std::string_view word = values[engine].value_or("any");
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

Tier TierOption::sized(Bytes state) const {
  Tier result = tier;
  if (slots) result.capacity = scale_bytes(state, *slots);
  return result;
}

TierOption parse_tier(std::string_view word) {
  const auto [name, values] = parsed(word, false);
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
  const auto [name, values] = parsed(word, true);
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
    real.tier = file_tier(real.directory, bytes, std::string(name), real.options);
  } else if (values[memory]) {
    real.kind = RealTier::Kind::memory;
    real.tier = memory_tier(room.value_or(free_memory()), std::string(name));
  } else {
    real.kind = RealTier::Kind::null;
    real.tier = null_tier(std::string(name));
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
