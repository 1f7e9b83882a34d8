// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/hierarchy.h"

#include <algorithm>
#include <limits>

#include "ebb/core/table_memory.h"
#include "ebb/plan/binomial.h"
#include "ebb/plan/cuts.h"
#include "ebb/plan/interval.h"

namespace ebb {
namespace {

using Kind = Choice::Kind;

constexpr double kNoPlan = std::numeric_limits<double>::infinity();
// Cuts tried and bounds written for a row of a table: one or two an entry are usual, and a row of
// 10^4 entries cannot take more.
constexpr std::int64_t kRowWork = 100'000'000;
// Of tables that count copies within fast memory, where the closed form takes no time at all.
constexpr double kCopyEntries = 1e5;

struct Level {
  std::int64_t slots = 0;
  bool plenty = false;  // one row stands for every number of slots
  double write = 0, read = 0;
  std::vector<Table<double>> stored;     // [row][l]
  std::vector<Table<std::int32_t>> cut;  // [row][l]: the best j, 0 for "go on below"
  std::vector<double> full;              // [l]

  std::size_t row(std::int64_t m) const { return plenty ? 0 : static_cast<std::size_t>(m - 1); }
};

class LevelTables : public Policy {
 public:
  // copy: seconds of copying a state within fast memory.
  LevelTables(const Problem& p, std::size_t tiers, double copy)
      : steps_(p.steps()),
        forward_(p.step.forward),
        copy_(copy),
        most_(copy > 0 ? kCopyEntries : kTableEntries),
        fast_(copy > 0 ? 1 : 0),
        start_charged_(p.machine.start_charged) {
    levels_.resize(fast_ + 1 + tiers);
    levels_[fast_].slots = p.states_in(p.room());
    levels_[fast_].write = levels_[fast_].read = copy;
    for (std::size_t k = 0; k < tiers; ++k) {
      const Tier& tier = p.tiers()[k];
      Level& level = levels_[fast_ + 1 + k];
      level.slots = p.states_in_tier(k);
      level.write = tier.write_seconds(p.step.state);
      level.read = tier.read_seconds(p.step.state);
    }
  }

  // false: too much work, the tables are of no use.
  bool build() {
    const auto n = static_cast<double>(steps_);
    double entries = n * static_cast<double>(levels_.size());
    if (entries > most_) return false;
    fill_lowest();
    for (std::size_t k = 1; k < levels_.size(); ++k) {
      Level& level = levels_[k];
      level.plenty = true;
      if (!fill_row(k, 0)) return false;
      if (slots_used(k) > level.slots) {
        level.plenty = false;
        level.stored.clear();
        level.cut.clear();
        entries += static_cast<double>(level.slots) * n;
        if (entries > most_) return false;
        for (std::int64_t m = 1; m <= level.slots; ++m) {
          if (!fill_row(k, level.row(m))) return false;
        }
      }
      fill_full(k);
    }
    return start_charged_ || fill_origin();
  }

  double seconds() const {
    const auto l = static_cast<std::size_t>(steps_ - 1);
    return start_charged_ ? levels_.back().full[l] : origin_[l];
  }

  Choice choose(const Segment& segment) const override {
    const std::int64_t l = segment.steps() - 1;
    const std::size_t top = levels_.size() - 1;
    Choice c;
    if (segment.start == Place::work) return keep_start(top, levels_[top].slots, l);
    const auto k = static_cast<std::size_t>(segment.level);
    c.left_level = segment.level;
    c.left_room = segment.room;
    if (k == levels_.size()) {
      cut_at(c, segment, origin_cut_[static_cast<std::size_t>(l)], top, levels_[top].slots);
      return c;
    }
    if (k == 0) {
      c.kind = Kind::restart;
      if (segment.room <= 1) return c;
      std::int32_t repeats = 0;
      cut_at(c, segment, binomial_split(l + 1, segment.room, repeats), 0, segment.room - 1);
      return c;
    }
    const Level& level = levels_[k];
    const std::int32_t j = level.cut[level.row(segment.room)][static_cast<std::size_t>(l)];
    if (j == 0) return keep_start(k - 1, levels_[k - 1].slots, l);
    cut_at(c, segment, j, k, segment.room - 1);
    return c;
  }

  std::int32_t origin_level() const { return static_cast<std::int32_t>(levels_.size()); }

 private:
  Place place(std::size_t k) const {
    return k <= fast_ ? Place::fast : Place::slow(static_cast<int>(k - fast_) - 1);
  }

  double unstored(std::size_t k, std::int64_t m, std::size_t l) const {
    if (l == 0) return 0;
    if (k == 0) {
      if (m < 1) return kNoPlan;
      return static_cast<double>(binomial_advances(static_cast<std::int64_t>(l) + 1, m)) * forward_;
    }
    const Level& level = levels_[k];
    const double below = levels_[k - 1].full[l];
    return m < 1 ? below : std::min(below, level.write + level.stored[level.row(m)][l]);
  }

  // Where a live state that starts l+1 steps goes when levels up to k, with m slots there, may hold
  // it.
  std::pair<std::size_t, std::int64_t> home(std::size_t k, std::int64_t m, std::int64_t l) const {
    const auto at = static_cast<std::size_t>(l);
    while (k > 0) {
      const Level& level = levels_[k];
      if (m >= 1 && level.write + level.stored[level.row(m)][at] < levels_[k - 1].full[at]) break;
      --k;
      m = levels_[k].slots;
    }
    return {k, m};
  }

  Choice keep_start(std::size_t k, std::int64_t m, std::int64_t l) const {
    const auto [to, slots] = home(k, m, l);
    Choice c;
    c.kind = Kind::keep_start;
    c.place = place(to);
    c.right_level = static_cast<std::int32_t>(to);
    c.right_room = slots;
    return c;
  }

  void cut_at(Choice& c, const Segment& segment, std::int64_t j, std::size_t k,
              std::int64_t m) const {
    const auto [to, slots] = home(k, m, segment.steps() - 1 - j);
    c.kind = Kind::keep_state;
    c.at = segment.a + j;
    c.place = place(to);
    c.right_level = static_cast<std::int32_t>(to);
    c.right_room = slots;
  }

  void fill_lowest() {
    Level& lowest = levels_[0];
    lowest.full.resize(static_cast<std::size_t>(steps_));
    for (std::size_t l = 0; l < lowest.full.size(); ++l) {
      lowest.full[l] = unstored(0, lowest.slots, l);
    }
  }

  // best[l] = min over 1 <= j <= l of head(j) + rest(l-j), or the floor; head(j) is known once
  // best[j-1] is, and so is the last of `rest` where that is the same row.
  template <class Head, class Floor>
  [[nodiscard]] bool minimise(Table<double>& best, Table<std::int32_t>& cut, Hull& rest,
                              const Head& head_of, const Floor& floor_of, bool same_row,
                              double write) const {
    const auto n = static_cast<std::size_t>(steps_);
    Hull head;
    CutSearch search(0, copy_ > 0 ? Tried::bends : Tried::all);
    head.add(kNoPlan);
    best.assign(n, 0);
    cut.assign(n, 0);
    for (std::size_t l = 1; l < n; ++l) {
      head.add(head_of(l, best[l - 1]));
      const double floor = floor_of(l);
      const auto last = static_cast<std::int64_t>(l);
      best[l] = floor;
      const std::int64_t j = search.find(head, rest, last, 1, last, 0, best[l]);
      if (j > 0) cut[l] = static_cast<std::int32_t>(j);
      if (same_row) rest.add(std::min(floor, write + best[l]));
      if (search.tries() + head.work() + rest.work() > kRowWork) return false;
    }
    return true;
  }

  [[nodiscard]] bool fill_row(std::size_t k, std::size_t row) {
    Level& level = levels_[k];
    const std::vector<double>& below = levels_[k - 1].full;
    Hull rest;
    rest.add(0);
    if (!level.plenty) {
      for (std::size_t i = 1; i < static_cast<std::size_t>(steps_); ++i) {
        rest.add(unstored(k, static_cast<std::int64_t>(row), i));
      }
    }
    Table<double> best;
    Table<std::int32_t> cut;
    const bool done = minimise(
        best, cut, rest,
        [&](std::size_t j, double left) {
          return static_cast<double>(j) * forward_ + level.read + left;
        },
        [&](std::size_t l) { return below[l]; }, level.plenty, level.write);
    level.stored.push_back(std::move(best));
    level.cut.push_back(std::move(cut));
    return done;
  }

  void fill_full(std::size_t k) {
    Level& level = levels_[k];
    level.full.resize(static_cast<std::size_t>(steps_));
    for (std::size_t l = 0; l < level.full.size(); ++l) {
      level.full[l] = unstored(k, level.slots, l);
    }
  }

  [[nodiscard]] bool fill_origin() {
    const std::vector<double>& full = levels_.back().full;
    Hull rest;
    for (const double seconds : full) rest.add(seconds);
    return minimise(
        origin_, origin_cut_, rest,
        [&](std::size_t j, double left) {
          return static_cast<double>(j) * forward_ + copy_ + left;
        },
        [](std::size_t) { return kNoPlan; }, false, 0);
  }

  // The most slots that the row of plenty holds at once.
  std::int64_t slots_used(std::size_t k) const {
    const Level& level = levels_[k];
    const auto n = static_cast<std::size_t>(steps_);
    std::vector<std::int64_t> kept(n, 1);   // with the start at this level
    std::vector<std::int64_t> fresh(n, 0);  // with the start anywhere
    std::int64_t most = 0;
    for (std::size_t l = 1; l < n; ++l) {
      const auto j = static_cast<std::size_t>(level.cut[0][l]);
      if (j > 0) kept[l] = std::max(1 + fresh[l - j], kept[j - 1]);
      const bool here = level.write + level.stored[0][l] < levels_[k - 1].full[l];
      fresh[l] = here ? kept[l] : 0;
      most = std::max(most, fresh[l]);
    }
    return most;
  }

  std::int64_t steps_;
  double forward_, copy_;
  double most_;  // entries
  // The level of fast memory. Where copies take time it has a table like the slow tiers, and below
  // it is a level of no slots.
  std::size_t fast_;
  bool start_charged_;
  std::vector<Level> levels_;
  Table<double> origin_;
  Table<std::int32_t> origin_cut_;
};

// The recurrence looks for room in nearer levels first.
bool nearest_first(const Problem& p, std::size_t tiers) {
  for (std::size_t k = 1; k < tiers; ++k) {
    const Tier& near = p.tiers()[k - 1];
    const Tier& far = p.tiers()[k];
    if (far.write_seconds(p.step.state) < near.write_seconds(p.step.state)) return false;
    if (far.read_seconds(p.step.state) < near.read_seconds(p.step.state)) return false;
  }
  return true;
}

Draft draft_tables(const Problem& p, std::size_t tiers) {
  Segment root = p.root();
  Draft draft;
  auto tables = std::make_shared<LevelTables>(p, tiers, p.copy_seconds());
  bool built = p.steps() > 1 && tables->build();
  if (p.steps() > 1 && !built && p.copy_seconds() > 0) {
    tables = std::make_shared<LevelTables>(p, tiers, 0);
    built = tables->build();
  }
  if (built) {
    root.level = tables->origin_level();
    const double seconds = tables->seconds();
    draft = descend(tables, root);
    // Not every cut is tried where copies count.
    draft.at_least = unavoidable_seconds(p.chain) + (p.copy_seconds() > 0 ? 0 : seconds);
    const bool in_turns = p.machine.sync || tiers == 0;
    draft.optimal = p.is_textbook() && in_turns && nearest_first(p, tiers);
  } else if (p.steps() <= 1) {
    draft = descend(tables, root);
    draft.at_least = unavoidable_seconds(p.chain);
    draft.optimal = true;
  } else {
    draft = draft_interval(p, {true, true, 1, 2, true});
  }
  if (!p.chain.is_uniform()) draft.at_least = unavoidable_seconds(p.chain);
  return draft;
}

Bytes least_with(const Problem& p, std::size_t tiers) {
  if (!p.machine.start_charged || p.steps() <= 1) return p.working();
  for (std::size_t k = 0; k < tiers; ++k) {
    if (p.states_in_tier(k) >= 1) return p.working();
  }
  return add_bytes(p.working(), p.step.state);
}

// What does not fill a period is a last one of its own, or joins the one before it.
IntervalShape shorter_or_longer_last(const Problem& p, const IntervalShape& shape) {
  IntervalShape longer = shape;
  longer.levels.front().more = p.steps() % shape.levels.front().every;
  const IntervalCost apart = interval_cost(p, shape);
  const IntervalCost joined = interval_cost(p, longer);
  const bool better = interval_fits(p, longer, joined) &&
                      interval_seconds(p, longer, joined) < interval_seconds(p, shape, apart);
  return better ? longer : shape;
}

// The paper's period, or a longer one when the tier could not hold the states.
IntervalShape periodic_shape(const Problem& p) {
  IntervalShape shape;
  shape.slots = std::min(p.states_in(p.room()), p.steps());
  const Tier& tier = p.tiers().front();
  const double transfer = tier.write_seconds(p.step.state) + tier.read_seconds(p.step.state);
  // Forwards that cost nothing are never worth a transfer.
  std::int64_t period = p.steps();
  if (p.options.period) {
    period = *p.options.period;
  } else if (p.step.forward > 0) {
    period = disk_period(shape.slots, transfer / p.step.forward, p.steps());
  }
  shape.levels.push_back(
      {std::clamp<std::int64_t>(period, 1, std::max<std::int64_t>(p.steps(), 1)), Place::slow(0)});
  if (p.options.period) return shorter_or_longer_last(p, shape);
  std::int64_t& every = shape.levels.front().every;
  every = std::max(every, p.steps() / (p.states_in_tier(0) + 1));
  while (every < p.steps() && interval_cost(p, shape).slow_held > p.states_in_tier(0)) {
    ++every;
  }
  return shorter_or_longer_last(p, shape);
}

std::size_t first_only(const Problem& p) { return p.tiers().empty() ? 0 : 1; }

}  // namespace

std::int64_t disk_period(std::int64_t slots, double cost, std::int64_t most) {
  if (slots < 1) return 1;
  std::int64_t t = 0;
  while (static_cast<double>(beta(slots + 1, t)) <= cost && beta(slots, t) < most) ++t;
  return std::min(beta(slots, t), most);
}

Draft draft_h_revolve(const Problem& p) { return draft_tables(p, p.tiers().size()); }
Draft draft_disk_revolve(const Problem& p) { return draft_tables(p, first_only(p)); }

Draft draft_periodic_disk(const Problem& p) { return draft_shape(p, periodic_shape(p)); }

Bytes least_periodic_disk(const Problem& p) {
  if (p.tiers().empty()) return kUnlimited;
  Problem tight = p;
  for (const Bytes room : {Bytes{0}, p.step.state}) {
    tight.machine.platform.fast = add_bytes(p.working(), room);
    const IntervalShape shape = periodic_shape(tight);
    const bool slots_enough = shape.slots > 0 || shape.levels.front().every == 1;
    if (slots_enough && interval_fits(tight, shape, interval_cost(tight, shape))) {
      return tight.machine.platform.fast;
    }
  }
  return kUnlimited;
}

Bytes least_h_revolve(const Problem& p) { return least_with(p, p.tiers().size()); }
Bytes least_disk_revolve(const Problem& p) { return least_with(p, first_only(p)); }

}  // namespace ebb
