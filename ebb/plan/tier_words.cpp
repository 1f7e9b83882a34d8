// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/tier_words.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "ebb/core/error.h"
#include "ebb/core/rate.h"
#include "ebb/core/words.h"

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

// The parts of one word, by key.
class Parts {
 public:
  Parts(std::string_view what, const TierWord& word)
      : tier_(std::string(what) + " " + shown(word.name) + ": ") {
    for (const TierPart& part : word.parts) {
      const auto known = std::find(kKeys.begin(), kKeys.end(), part.key);
      if (known == kKeys.end() || !part.value) {
        fail(ErrorCode::invalid_argument, tier_, "cannot read '", shown(part.text()),
             "'; write key=value with the keys slots, capacity, write, write_time, read, "
             "read_time, latency, duplex");
      }
      values_[static_cast<std::size_t>(known - kKeys.begin())] = part.value;
    }
    check_one_of(slots, capacity);
    check_one_of(write, write_time);
    check_one_of(read, read_time);
  }

  const std::optional<std::string>& operator[](Key key) const { return values_[key]; }
  std::string name(Key key) const { return tier_ + std::string(kKeys[key]); }

  double rate(Key key) const {
    if (!values_[key]) return std::numeric_limits<double>::infinity();
    try {
      return parse_rate(*values_[key]);
    } catch (const Error&) {
      fail(ErrorCode::invalid_argument, name(key), " is '", shown(*values_[key]),
           "'; it must be bytes a second above 0, such as 0.5, 2.5GB/s or unlimited");
    }
  }
  double seconds(Key key) const {
    return values_[key] ? read_seconds(name(key), *values_[key]) : 0;
  }
  // Left out: yes.
  bool yes_or_no(Key key) const {
    const std::string word = values_[key].value_or("yes");
    if (word == "yes" || word == "no") return word == "yes";
    fail(ErrorCode::invalid_argument, name(key), " is '", shown(word), "'; it must be yes or no");
  }

 private:
  void check_one_of(Key a, Key b) const {
    if (!values_[a] || !values_[b]) return;
    fail(ErrorCode::invalid_argument, tier_, kKeys[a], " and ", kKeys[b],
         " say the same thing; give one of them");
  }

  std::string tier_;  // "tier disk: "
  std::array<std::optional<std::string>, key_count> values_;
};

}  // namespace

TierWord split_tier(std::string_view what, std::string_view word) {
  const std::size_t colon = std::min(word.find(':'), word.size());
  TierWord found{std::string(word.substr(0, colon)), {}};
  check_tier_name(what, found.name);
  std::string_view rest = word.substr(std::min(colon + 1, word.size()));
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view text = rest.substr(0, comma);
    const std::size_t equals = std::min(text.find('='), text.size());
    TierPart part{std::string(text.substr(0, equals))};
    if (equals < text.size()) part.value = text.substr(equals + 1);
    const auto same = [&part](const TierPart& other) { return other.key == part.key; };
    if (std::any_of(found.parts.begin(), found.parts.end(), same)) {
      fail(ErrorCode::invalid_argument, what, " ", found.name, ": ", shown(part.key),
           " is given twice");
    }
    found.parts.push_back(std::move(part));
    // An empty part is refused by the one who reads the parts.
    if (comma + 1 == rest.size() && !text.empty()) {
      fail(ErrorCode::invalid_argument, what, " ", found.name, ": nothing follows the last comma");
    }
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return found;
}

std::span<const std::string_view> planned_tier_keys() { return kKeys; }

Tier planned_tier(std::string_view what, const TierWord& word, const Chain& chain) {
  const Parts parts(what, word);
  Tier tier;
  tier.name = word.name;
  if (parts[slots]) {
    const std::string name = parts.name(slots);
    const std::int64_t count = read_count(name, *parts[slots], 0, 1'000'000'000'000);
    tier.capacity = scale_bytes(state_of_all(name, chain), count);
  }
  if (parts[capacity]) {
    tier.capacity = read_size(parts.name(capacity), *parts[capacity], 0, kUnlimited);
  }
  tier.write_rate = parts.rate(write);
  tier.read_rate = parts.rate(read);
  const double both = parts.seconds(latency);
  tier.write_latency = both + parts.seconds(write_time);
  tier.read_latency = both + parts.seconds(read_time);
  tier.duplex = parts.yes_or_no(duplex);
  return tier;
}

Bytes state_of_all(std::string_view what, const Chain& chain) {
  const Bytes first = chain.at(0).state;
  for (std::int64_t i = 1; !chain.is_uniform() && i < chain.steps(); ++i) {
    if (chain.at(i).state == first) continue;
    fail(ErrorCode::invalid_argument, what,
         " counts states, but the chain's states differ in size; give bytes instead");
  }
  return first;
}

}  // namespace ebb
