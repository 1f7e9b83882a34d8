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

// What the hsm schedule of l steps with s slots does, the keeping of its start not counted.
struct Tally {
  std::int64_t actions = 0, calls = 0, held = 0;
};

class Tallies {
 public:
  Tally of(std::int64_t l, std::int64_t s) {
    if (l == 1) return {2, 2, 0};
    if (s == 1) return {4 * l - 2, 3 * l - 1, 0};
    const auto found = known_.find({l, s});
    if (found != known_.end()) return found->second;
    std::int32_t repeats = 0;
    const std::int64_t y = binomial_split(l, s, repeats);
    const Tally right = of(l - y, s - 1);
    const Tally left = of(y, s);
    const std::int64_t kept = l - y > 1 ? 1 : 0;
    const Tally sum{right.actions + left.actions + 2 + 2 * kept, right.calls + left.calls + 1,
                    std::max(right.held + kept, left.held)};
    known_.emplace(std::pair{l, s}, sum);
    return sum;
  }

 private:
  std::map<std::pair<std::int64_t, std::int64_t>, Tally> known_;
};

Prediction forecast_hsm(const Problem& p, std::int64_t slots) {
  Prediction f;
  const std::int64_t n = p.steps();
  f.records = n;
  f.advances = binomial_advances(n, slots);
  f.forwards = n + f.advances;
  Tally tally = Tallies().of(n, slots);
  if (p.machine.start_charged && n > 1) {
    tally.actions += 2;
    tally.held += 1;
  }
  f.actions = tally.actions;
  f.seconds = unavoidable_seconds(p.chain) + static_cast<double>(f.advances) * p.step.forward +
              static_cast<double>(tally.calls) * p.chain.call();
  f.peak.assign(p.tiers().size() + 1, 0);
  f.peak[0] = add_bytes(p.working(), scale_bytes(p.step.state, tally.held));
  f.moved.assign(p.tiers().size(), {});
  return f;
}

// The tallies walk both parts of every segment by recursion: deep for thousands of slots, which need no forecast since
// such plans have few actions per step.
constexpr std::int64_t kForecastSlots = 4096;

Draft draft_states(const Problem& p, std::int64_t slots) {
  Segment root = p.root();
  root.room = slots;
  Draft draft = descend(std::make_shared<BinomialPolicy>(false), root);
  draft.parameters = {{"slots", slots}};
  draft.optimal = p.chain.is_uniform() && p.chain.call() == 0;
  draft.at_least = unavoidable_seconds(p.chain);
  if (p.steps() == 0 || !p.chain.is_uniform()) return draft;
  draft.at_least +=
      static_cast<double>(binomial_advances(p.steps(), std::max<std::int64_t>(slots, 1))) *
      p.step.forward;
  if (slots >= 1 && slots <= kForecastSlots) draft.forecast = forecast_hsm(p, slots);
  return draft;
}

}  // namespace

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
  draft.optimal = p.chain.is_uniform() && p.chain.call() == 0;
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
