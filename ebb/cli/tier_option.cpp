// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/tier_option.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <string>

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
  key_count
};
constexpr std::array<std::string_view, key_count> kKeys = {
    "slots", "capacity", "write", "write_time", "read", "read_time", "latency", "duplex"};

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

// Splits "key=value,key=value" after checking that each key is known and given once.
Values split(std::string_view name, std::string_view rest) {
  Values values;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view part = rest.substr(0, comma);
    const std::size_t equals = std::min(part.find('='), part.size());
    const auto known = std::find(kKeys.begin(), kKeys.end(), part.substr(0, equals));
    if (known == kKeys.end() || equals == part.size()) {
      fail(ErrorCode::invalid_argument, "--tier ", name, ": cannot read '", shown(part),
           "'; write key=value with the keys slots, capacity, write, write_time, read, read_time, "
           "latency, duplex");
    }
    auto& value = values[static_cast<std::size_t>(known - kKeys.begin())];
    if (value) fail(ErrorCode::invalid_argument, "--tier ", name, ": ", *known, " is given twice");
    value = part.substr(equals + 1);
    if (comma + 1 == rest.size()) {
      fail(ErrorCode::invalid_argument, "--tier ", name, ": nothing follows the last comma");
    }
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return values;
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

bool duplex_of(std::string_view name, const Values& values) {
  const std::string_view word = values[duplex].value_or("yes");
  if (word == "yes" || word == "no") return word == "yes";
  fail(ErrorCode::invalid_argument, option_name(name, duplex), " is '", shown(word),
       "'; it must be yes or no");
}

}  // namespace

Tier TierOption::sized(Bytes state) const {
  Tier result = tier;
  if (slots) result.capacity = scale_bytes(state, *slots);
  return result;
}

TierOption parse_tier(std::string_view word) {
  const std::size_t colon = std::min(word.find(':'), word.size());
  const std::string_view name = word.substr(0, colon);
  check_name(name);
  const Values values = split(name, word.substr(std::min(colon + 1, word.size())));
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
  option.tier.duplex = duplex_of(name, values);
  return option;
}

}  // namespace ebb
