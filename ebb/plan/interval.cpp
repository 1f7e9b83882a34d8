// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/interval.h"

#include <algorithm>
#include <cmath>

#include "ebb/core/error.h"
#include "ebb/plan/binomial.h"

namespace ebb {
namespace {

using Kind = Choice::Kind;

std::size_t level_of(const IntervalShape& shape, std::size_t level, std::int64_t n) {
  while (level < shape.levels.size() && n <= shape.levels[level].every + shape.levels[level].more) {
    ++level;
  }
  return level;
}

}  // namespace

Choice IntervalPolicy::choose(const Segment& segment) const {
  const std::size_t level =
      level_of(shape_, static_cast<std::size_t>(segment.level), segment.steps());
  const bool innermost = level == shape_.levels.size();
  Choice c;
  if (innermost && shape_.slots == 0) return c;
  const Place place = innermost ? Place::fast : shape_.levels[level].place;
  const bool far = segment.start == Place::work || segment.start.is_slow();
  c.right_level = c.left_level = static_cast<std::int32_t>(level);
  if (far && (place == Place::fast || segment.start == Place::work)) {
    c.kind = Kind::keep_start;
    c.place = place;
    c.right_room = shape_.slots;
    return c;
  }
  if (innermost) {
    const std::int64_t slots = segment.room > 0 ? segment.room : shape_.slots;
    c.left_room = slots;
    c.kind = Kind::restart;
    if (slots == 1) return c;
    std::int32_t repeats = 0;
    c.kind = Kind::keep_state;
    c.at = segment.a + binomial_split(segment.steps(), slots, repeats);
    c.right_room = slots - 1;
    return c;
  }
  c.kind = Kind::keep_state;
  c.place = place;
  c.at = segment.a + shape_.levels[level].every;
  c.left_level = static_cast<std::int32_t>(level) + 1;
  return c;
}

namespace {

// Walks a shape on paper, one representative chunk of each kind.
class Walk {
 public:
  Walk(const Problem& problem, const IntervalShape& shape) : p_(problem), shape_(shape) {}

  // A segment of n steps whose start is at `start`; the bytes of that start are not counted here.
  IntervalCost segment(std::int64_t n, std::size_t level, Place start) const {
    IntervalCost cost;
    level = level_of(shape_, level, n);
    if (n <= 1) {
      cost.calls = 2 * n;
    } else if (level == shape_.levels.size()) {
      innermost(cost, n, start);
    } else {
      chunks(cost, n, level, start);
    }
    return cost;
  }

 private:
  // The segment loads its start again from where it is.
  bool uses_start(std::int64_t n, std::size_t level, Place start) const {
    level = level_of(shape_, level, n);
    if (n <= 1 || (level == shape_.levels.size() && shape_.slots == 0)) return false;
    const Place place = level == shape_.levels.size() ? Place::fast : shape_.levels[level].place;
    return !(start.is_slow() && place == Place::fast);
  }

  void innermost(IntervalCost& cost, std::int64_t n, Place start) const {
    if (shape_.slots == 0) {
      cost.calls = 2;
      cost.fast = scale_bytes(p_.step.tape, n - 1);
      return;
    }
    cost.advances = binomial_advances(n, shape_.slots);
    cost.calls = 3 * n - 1;
    cost.copies = n - 1 + (start == Place::fast ? 0 : 1);
    const std::int64_t held = std::min(shape_.slots - 1, n - 2) + (start == Place::fast ? 0 : 1);
    cost.fast = scale_bytes(p_.step.state, held);
  }

  // Chunks 0..count-1 of `every` steps, the last one shorter or up to `more` longer. The states
  // before chunks 1..count-2 are always kept, the one before the last chunk only if that chunk
  // loads it.
  void chunks(IntervalCost& cost, std::int64_t n, std::size_t level, Place start) const {
    const auto [every, place, more] = shape_.levels[level];
    const std::int64_t count = (n - more + every - 1) / every;
    const std::int64_t rest = n - (count - 1) * every;
    const bool kept_here = start == Place::work || (start.is_slow() && place == Place::fast);
    const Place own = kept_here ? place : start;
    const Bytes base = kept_here && place == Place::fast ? p_.step.state : 0;
    cost.advances = (count - 1) * every;
    cost.calls = count - 1;

    chunk(cost, 1, rest, count - 1, level, base);
    if (count > 2) chunk(cost, count - 2, every, count - 2, level, base);
    const bool again = uses_start(every, level + 1, own);
    merge(cost, segment(every, level + 1, own), 1, again ? base : 0);

    const std::int64_t kept = count - 2 + (uses_start(rest, level + 1, place) ? 1 : 0);
    if (own == Place::fast) cost.copies += kept_here ? 2 : 1;
    if (!place.is_slow()) {
      cost.copies += kept + count - 2;
      return;
    }
    cost.slow_writes = cost.slow_held = kept;
    cost.slow_reads = count - 2;
    if (start == Place::work) {
      cost.slow_writes += 1;
      cost.slow_held += 1;
      cost.slow_reads += 1;
    }
  }

  // `times` chunks of `steps` steps, the rightmost of them number `index`: the states
  // before 1..index-1 are still kept.
  void chunk(IntervalCost& cost, std::int64_t times, std::int64_t steps, std::int64_t index,
             std::size_t level, Bytes base) const {
    const Place place = shape_.levels[level].place;
    const std::int64_t held = index - 1 + (uses_start(steps, level + 1, place) ? 1 : 0);
    const IntervalCost part = segment(steps, level + 1, place);
    if (place == Place::fast) base = add_bytes(base, scale_bytes(p_.step.state, held));
    merge(cost, part, times, base);
  }

  static void merge(IntervalCost& cost, const IntervalCost& part, std::int64_t times,
                    Bytes beside) {
    cost.advances += times * part.advances;
    cost.calls += times * part.calls;
    cost.copies += times * part.copies;
    cost.fast = std::max(cost.fast, add_bytes(part.fast, beside));
  }

  const Problem& p_;
  const IntervalShape& shape_;
};

const Tier& outermost_tier(const Problem& p, const IntervalShape& shape) {
  return p.tiers()[static_cast<std::size_t>(shape.levels.front().place.tier())];
}

bool tier_holds(const Problem& p, const IntervalShape& shape, const IntervalCost& cost) {
  if (cost.slow_held == 0) return true;
  return scale_bytes(p.step.state, cost.slow_held) <= outermost_tier(p, shape).capacity;
}

// Interval lengths worth trying, largest first: all of them up to `largest`, or those that cut so
// many steps into a number of chunks from a series of that ratio, the last chunk as long as the
// others or a half or a quarter of them (what is held beside it is most then).
std::vector<std::int64_t> lengths(std::int64_t largest, bool all, double ratio) {
  std::vector<std::int64_t> out;
  if (all) {
    for (std::int64_t k = largest; k >= 1; --k) out.push_back(k);
    return out;
  }
  double count = 1;
  while (count < 2 * static_cast<double>(largest)) {
    for (const double last : {0.25, 0.5, 1.0}) {
      const double chunks = std::floor(count) - 1 + last;
      const auto every =
          static_cast<std::int64_t>(std::ceil(static_cast<double>(largest) / chunks));
      if (every <= largest && every >= 1 && (out.empty() || every < out.back())) {
        out.push_back(every);
      }
    }
    count = std::max(count * ratio, count + 1);
  }
  return out;
}

// Searches shapes with levels at `places`, keeping what `better` prefers.
class Search {
 public:
  Search(const Problem& problem, std::vector<Place> places, bool binomial)
      : p_(problem), places_(std::move(places)), binomial_(binomial) {
    const auto depth = places_.size();
    // Every tuple of lengths while there are not too many of them.
    all_ = p_.steps() <= (depth == 1 ? 100'000 : depth == 2 ? 400 : depth == 3 ? 60 : 24);
    ratio_ = depth <= 2 ? 1.05 : (depth == 3 ? 1.6 : 3);
  }

  // The fastest that fits, or nothing.
  std::optional<IntervalShape> fastest() {
    best_seconds_ = std::numeric_limits<double>::infinity();
    visit([this](const IntervalShape& shape) { consider(shape); });
    return best_;
  }

  // The least bytes beside the working set that some shape needs, tiers permitting; kUnlimited if
  // none does.
  Bytes least() {
    Bytes least = kUnlimited;
    visit([&](const IntervalShape& shape) {
      const IntervalCost cost = interval_cost(p_, shape);
      if (tier_holds(p_, shape, cost)) least = std::min(least, cost.fast);
    });
    return least;
  }

 private:
  template <class Visit>
  void visit(const Visit& visit_shape) {
    IntervalShape shape;
    shape.slots = binomial_ ? 1 : 0;
    if (!p_.options.intervals.empty()) {
      for (std::size_t i = 0; i < places_.size(); ++i) {
        shape.levels.push_back({p_.options.intervals[i], places_[i]});
      }
      visit_shape(shape);
      return;
    }
    descend_levels(shape, p_.steps(), visit_shape);
  }

  template <class Visit>
  void descend_levels(IntervalShape& shape, std::int64_t largest, const Visit& visit_shape) {
    if (shape.levels.size() == places_.size()) {
      visit_shape(shape);
      return;
    }
    for (const std::int64_t every : lengths(largest, all_, ratio_)) {
      shape.levels.push_back({every, places_[shape.levels.size()]});
      descend_levels(shape, every - 1, visit_shape);
      shape.levels.pop_back();
    }
  }

  void consider(IntervalShape shape) {
    IntervalCost cost = interval_cost(p_, shape);
    if (!interval_fits(p_, shape, cost)) return;
    if (binomial_) {
      // The slots are the only thing inside that grows with the room.
      shape.slots += p_.states_in(p_.room() - cost.fast);
      shape.slots = std::min(shape.slots, shape.levels.back().every);
      cost = interval_cost(p_, shape);
    }
    const double seconds = interval_seconds(p_, shape, cost);
    if (seconds > best_seconds_ || (seconds == best_seconds_ && cost.fast >= best_fast_)) return;
    best_seconds_ = seconds;
    best_fast_ = cost.fast;
    best_ = shape;
  }

  const Problem& p_;
  std::vector<Place> places_;
  bool binomial_;
  bool all_ = false;
  double ratio_ = 2;
  std::optional<IntervalShape> best_;
  double best_seconds_ = 0;
  Bytes best_fast_ = 0;
};

// Every arrangement of places in the family: the outermost level local or in one slow tier, the
// others local.
std::vector<std::vector<Place>> arrangements(const Problem& p, const IntervalFamily& family) {
  auto fewest = static_cast<std::size_t>(family.fewest);
  auto most = static_cast<std::size_t>(family.most);
  if (const std::size_t given = p.options.intervals.size(); given != 0) {
    if (given < fewest || given > most) {
      fail(ErrorCode::invalid_argument, "interval: ", given, " lengths given; this strategy takes ",
           fewest, fewest == most ? "" : " to ", fewest == most ? "" : std::to_string(most));
    }
    fewest = most = given;
  }
  std::vector<std::vector<Place>> out;
  for (std::size_t depth = fewest; depth <= most; ++depth) {
    if (family.local) out.emplace_back(depth, Place::fast);
    for (std::size_t k = 0; family.remote && k < p.tiers().size(); ++k) {
      out.emplace_back(depth, Place::fast);
      out.back().front() = Place::slow(static_cast<int>(k));
    }
  }
  return out;
}

IntervalShape sqrt_shape(const Problem& p) {
  if (!p.options.intervals.empty()) return {{{p.options.intervals.front(), Place::fast}}};
  const auto chunks =
      static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(p.steps()))));
  return {{{(p.steps() + chunks - 1) / std::max<std::int64_t>(chunks, 1), Place::fast}}};
}

}  // namespace

IntervalCost interval_cost(const Problem& p, const IntervalShape& shape) {
  return Walk(p, shape).segment(p.steps(), 0, p.root().start);
}

double interval_seconds(const Problem& p, const IntervalShape& shape, const IntervalCost& cost) {
  double seconds = unavoidable_seconds(p.chain) +
                   static_cast<double>(cost.advances) * p.step.forward +
                   static_cast<double>(cost.calls) * p.chain.call() +
                   static_cast<double>(cost.copies) * p.copy_seconds();
  if (cost.slow_writes + cost.slow_reads > 0) {
    const Tier& tier = outermost_tier(p, shape);
    seconds += static_cast<double>(cost.slow_writes) * tier.write_seconds(p.step.state) +
               static_cast<double>(cost.slow_reads) * tier.read_seconds(p.step.state);
  }
  return seconds;
}

bool interval_fits(const Problem& p, const IntervalShape& shape, const IntervalCost& cost) {
  return cost.fast <= p.room() && tier_holds(p, shape, cost);
}

Draft draft_shape(const Problem& p, const IntervalShape& shape) {
  Segment root = p.root();
  root.room = shape.slots;
  Draft draft = descend(std::make_shared<IntervalPolicy>(shape), root);
  for (std::size_t i = 0; i < shape.levels.size(); ++i) {
    const auto& [every, place, more] = shape.levels[i];
    const std::string where =
        place.is_slow() ? p.tiers()[static_cast<std::size_t>(place.tier())].name : "fast";
    draft.parameters.emplace_back("every in " + where, every);
  }
  if (shape.slots > 0) draft.parameters.emplace_back("slots inside", shape.slots);
  draft.at_least = p.chain.is_uniform() ? interval_seconds(p, shape, interval_cost(p, shape))
                                        : unavoidable_seconds(p.chain);
  return draft;
}

Draft draft_sqrt(const Problem& p) { return draft_shape(p, sqrt_shape(p)); }
Bytes least_sqrt(const Problem& p) {
  return add_bytes(p.working(), interval_cost(p, sqrt_shape(p)).fast);
}

Draft draft_interval(const Problem& p, const IntervalFamily& family) {
  std::optional<IntervalShape> best;
  double best_seconds = std::numeric_limits<double>::infinity();
  for (const auto& places : arrangements(p, family)) {
    const std::optional<IntervalShape> shape = Search(p, places, family.binomial).fastest();
    if (!shape) continue;
    const double seconds = interval_seconds(p, *shape, interval_cost(p, *shape));
    if (best && seconds >= best_seconds) continue;
    best = shape;
    best_seconds = seconds;
  }
  return draft_shape(p, best.value_or(IntervalShape{}));
}

Bytes least_interval(const Problem& p, const IntervalFamily& family) {
  if (!family.local && p.tiers().empty()) return kUnlimited;
  Bytes least = p.steps() <= 1 ? 0 : kUnlimited;
  for (const auto& places : arrangements(p, family)) {
    if (p.steps() > 1) least = std::min(least, Search(p, places, family.binomial).least());
  }
  return add_bytes(p.working(), least);
}

}  // namespace ebb
