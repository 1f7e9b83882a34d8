// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/binomial.h"

#include <algorithm>
#include <map>

namespace ebb {
namespace {

using Kind = Choice::Kind;
__extension__ using Wide = __int128;

// beta(s,r) from beta(s,r-1).
std::int64_t next_beta(std::int64_t before, std::int64_t s, std::int64_t r) {
  constexpr std::int64_t small = std::int64_t{1} << 31;
  if (before < small && s + r < small) return before * (s + r) / r;
  const Wide value = static_cast<Wide>(before) * (s + r) / r;
  return value > kUnlimited ? kUnlimited : static_cast<std::int64_t>(value);
}

// The r with beta(s,r-1) < l <= beta(s,r).
std::int64_t repeats_of(std::int64_t l, std::int64_t s, std::int64_t at_most) {
  if (l <= s + 1) return 1;
  if (at_most > 0) {
    std::int64_t r = at_most;
    while (r > 1 && beta(s, r - 1) >= l) --r;
    return r;
  }
  std::int64_t r = 1;
  for (std::int64_t b = s + 1; b < l; b = next_beta(b, s, r)) ++r;
  return r;
}

// How many states the hsm schedule of l steps with s slots saves, its start not counted.
class Saves {
 public:
  std::int64_t of(std::int64_t l, std::int64_t s) {
    struct Open {
      Key key;
      std::int32_t repeats;  // no part repeats more than the whole
    };
    std::vector<Open> open{{{l, s}, 0}};
    while (!open.empty()) {
      auto [key, repeats] = open.back();
      if (known(key)) {
        open.pop_back();
        continue;
      }
      const std::int64_t y = binomial_split(key.first, key.second, repeats);
      const Key right{key.first - y, key.second - 1};
      const Key left{y, key.second};
      const auto in_right = known(right);
      const auto in_left = known(left);
      if (in_right && in_left) {
        known_.emplace(key, *in_right + *in_left + (right.first > 1 ? 1 : 0));
        open.pop_back();
      } else {
        if (!in_right) open.push_back({right, repeats});
        if (!in_left) open.push_back({left, repeats});
      }
    }
    return *known({l, s});
  }

 private:
  using Key = std::pair<std::int64_t, std::int64_t>;

  std::optional<std::int64_t> known(const Key& key) const {
    const auto [l, s] = key;
    if (s == 1 || l <= 2) return 0;
    if (l <= s + 1) return l - 2;
    const auto found = known_.find(key);
    return found == known_.end() ? std::nullopt : std::optional(found->second);
  }

  std::map<Key, std::int64_t> known_;
};

Draft draft_states(const Problem& p, std::int64_t slots) {
  Segment root = p.root();
  root.room = slots;
  Draft draft = descend(std::make_shared<BinomialPolicy>(false), root);
  draft.parameters = {{"slots", slots}};
  draft.optimal = p.is_textbook();
  draft.at_least = unavoidable_seconds(p.chain);
  if (p.steps() == 0 || !p.chain.is_uniform()) return draft;
  draft.at_least +=
      static_cast<double>(binomial_advances(p.steps(), std::max<std::int64_t>(slots, 1))) *
      p.step.forward;
  if (p.steps() > kReplaySteps) draft.forecast = forecast_hsm(p, std::max<std::int64_t>(slots, 1));
  return draft;
}

}  // namespace

// In the tree of segments every step is recorded and reversed, and each of the l-1 inner nodes
// advances once and loads its start once.
Prediction forecast_hsm(const Problem& p, std::int64_t slots) {
  Prediction f;
  const std::int64_t n = p.steps();
  f.records = n;
  f.advances = binomial_advances(n, slots);
  f.forwards = n + f.advances;
  const bool charged = p.machine.start_charged && n > 1;
  const std::int64_t saves = Saves().of(n, slots) + (charged ? 1 : 0);
  f.actions = 2 * n + 2 * (n - 1) + 2 * saves;
  f.seconds = unavoidable_seconds(p.chain) + static_cast<double>(f.advances) * p.step.forward +
              static_cast<double>(3 * n - 1) * p.chain.call() +
              static_cast<double>(n - 1 + saves) * static_cast<double>(p.step.state) /
                  p.machine.platform.copy_rate;
  const std::int64_t held =
      std::max<std::int64_t>(std::min(slots - 1, n - 2), 0) + (charged ? 1 : 0);
  f.peak.assign(p.tiers().size() + 1, 0);
  f.peak[0] = add_bytes(p.working(), scale_bytes(p.step.state, held));
  f.moved.assign(p.tiers().size(), {});
  return f;
}

std::int64_t beta(std::int64_t s, std::int64_t r) {
  if (s < 0 || r < 0) return 0;
  const std::int64_t few = std::min(s, r);
  const std::int64_t many = std::max(s, r);
  std::int64_t value = 1;
  for (std::int64_t i = 1; i <= few && value < kUnlimited; ++i) value = next_beta(value, many, i);
  return value;
}

std::int64_t binomial_advances(std::int64_t l, std::int64_t s) {
  if (s == 1) return l % 2 == 0 ? l / 2 * (l - 1) : (l - 1) / 2 * l;
  const std::int64_t r = repeats_of(l, s, 0);
  return r * l - beta(s + 1, r - 1);
}

std::int64_t binomial_split(std::int64_t l, std::int64_t s, std::int32_t& repeats) {
  const std::int64_t r = repeats_of(l, s, repeats);
  repeats = static_cast<std::int32_t>(r);
  if (r == 1) return 1;
  std::int64_t y = 0;
  if (l <= beta(s, r - 1) + beta(s - 2, r - 1)) {
    y = beta(s, r - 2);
  } else if (l >= beta(s, r) - beta(s - 3, r)) {
    y = beta(s, r - 1);
  } else {
    y = l - beta(s - 1, r - 1) - beta(s - 2, r - 1);
  }
  return std::max<std::int64_t>(y, 1);
}

Choice BinomialPolicy::choose(const Segment& segment) const {
  Choice c;
  if (segment.start == Place::work) {
    c.kind = Kind::keep_start;
    c.right_room = segment.room;
    return c;
  }
  const std::int64_t n = segment.steps();
  const std::int64_t slots = segment.room;
  if (tapes_ && n <= slots) return c;
  c.left_room = slots;
  if (slots <= 1) {
    c.kind = Kind::restart;
    return c;
  }
  std::int32_t repeats = segment.level;
  const std::int64_t y = binomial_split(tapes_ ? n + 1 : n, slots, repeats);
  c.kind = tapes_ ? Kind::keep_tape : Kind::keep_state;
  c.at = segment.a + y;
  c.right_room = slots - 1;
  c.right_level = repeats;
  c.left_level = std::max(repeats - 1, 1);
  return c;
}

Draft draft_constant(const Problem& p) { return draft_states(p, 1); }

Draft draft_hsm(const Problem& p) {
  const std::int64_t free = p.machine.start_charged ? 0 : 1;
  return draft_states(p, std::max<std::int64_t>(p.states_in(p.room()) + free, 1));
}

Draft draft_ism(const Problem& p) {
  const std::int64_t slots = std::min(p.room() / p.step.tape, p.steps()) + 1;
  Segment root = p.root();
  root.room = slots;
  Draft draft = descend(std::make_shared<BinomialPolicy>(true), root);
  draft.parameters = {{"slots", slots}};
  // Cheaper recordings would be worth making for their state alone.
  draft.optimal = p.is_textbook() && p.step.record >= p.step.forward;
  draft.at_least = unavoidable_seconds(p.chain);
  if (p.chain.is_uniform()) {
    const std::int64_t again = binomial_advances(p.steps() + 1, slots) - p.steps();
    draft.at_least += static_cast<double>(again) * p.step.forward;
  }
  return draft;
}

Bytes least_binomial(const Problem& p) {
  if (!p.machine.start_charged || p.steps() <= 1) return p.working();
  return add_bytes(p.working(), p.step.state);
}

}  // namespace ebb
