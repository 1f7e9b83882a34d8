// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/uniform_mix.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>

#include "ebb/core/table_memory.h"
#include "ebb/plan/cuts.h"

namespace ebb {
namespace {

using Kind = Choice::Kind;

// Capacities stop growing here, so that adding three of them cannot overflow.
constexpr std::int64_t kMostCapacity = std::int64_t{1} << 60;
// Columns of the capacities: beyond that many units of memory they grow coarser.
constexpr std::int64_t kColumns = 1 << 21;

// Memory in whole units, so that tables can be indexed by it. Items are rounded up, the room down.
struct Units {
  std::int64_t state = 1, tape = 1, room = 0;
  Bytes unit = 1;

  std::int64_t in(Bytes bytes) const { return std::clamp<std::int64_t>(bytes / unit, 0, room); }
};

Units to_units(std::int64_t steps, Bytes state, Bytes tape, Bytes room) {
  const Bytes most = scale_bytes(std::max(state, tape), steps);
  room = std::min(room, most);
  const Bytes common = std::gcd(state, tape);
  const Bytes unit = std::max(common, room / kColumns + (room % kColumns != 0 ? 1 : 0));
  return {(state - 1) / unit + 1, (tape - 1) / unit + 1, room / unit, unit};
}

Choice keep(const Segment& s, std::int64_t y, bool tape, const Units& u) {
  Choice c;
  c.kind = tape ? Kind::keep_tape : Kind::keep_state;
  c.at = s.a + y;
  c.right_room = s.room - (tape ? u.tape : u.state);
  c.left_room = s.room;
  return c;
}

Choice restart(const Segment& s) {
  Choice c;
  c.kind = Kind::restart;
  c.left_room = s.room;
  return c;
}

// All tapes of the segment fit beside the one in use.
bool all_fit(const Segment& s, const Units& u) { return (s.steps() - 1) <= s.room / u.tape; }

// Forwards for every length and memory: the published table, or with `release` the one that also
// drops a start at its last load. Cost is a whole number where copies are free. Segment::level: 0,
// the start costs nothing; 1, its bytes are inside the segment's room. Rows are those of memory that
// holds some states and tapes to the last unit: what is more than that, and less than the next, is
// of no use.
template <class Cost>
class UniformMixTable : public UniformMixPolicy {
 public:
  UniformMixTable(std::int64_t steps, const Units& units, bool release, double copy)
      : u_(units),
        columns_(static_cast<std::size_t>(steps) + 1),
        rows_(filled_rows(units)),
        release_(release),
        copy_(static_cast<Cost>(copy)) {
    for (const std::int64_t m : rows_) {
      if (release_) fill_charged(m);
      fill_free(m);
    }
  }

  std::int64_t units_in(Bytes room) const override { return u_.in(room); }
  std::int64_t forwards(std::int64_t t, std::int64_t m) const override {
    return static_cast<std::int64_t>(kept_[0].cost[row_of(m)][index(t)]);
  }

  Choice choose(const Segment& s) const override {
    if (all_fit(s, u_)) return {};
    const bool charged = s.level == 1;
    const std::int32_t cut = kept_[charged ? 1 : 0].cut[row_of(s.room)][index(s.steps())];
    Choice c;
    c.left_level = s.level;
    c.left_room = s.room;
    c.kind = cut == 0 ? Kind::restart : (cut < 0 ? Kind::keep_tape : Kind::keep_state);
    c.at = s.a + std::abs(cut);
    c.right_level = release_ && cut > 0 ? 1 : 0;
    // A tape of the first step needs the start no more.
    c.right_room = s.room - (charged && cut != -1 ? u_.state : 0);
    if (cut < 0) c.right_room -= u_.tape;
    if (cut > 0 && !release_) c.right_room -= u_.state;
    return c;
  }

 private:
  using Row = Table<Cost>;
  using Cuts = Table<std::int32_t>;
  struct Tables {
    std::vector<Row> cost;  // [row of m][t]
    std::vector<Cuts> cut;  // [row of m][t]: y, -y for a tape, 0 for restart
  };

  static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }
  static constexpr bool kWhole = std::is_integral_v<Cost>;
  static constexpr Cost kNever = kWhole ? Cost{1 << 30} : std::numeric_limits<Cost>::infinity();
  static constexpr double kGain = kWhole ? 1 : 0;
  static constexpr Tried kTried = kWhole ? Tried::all : Tried::bends;

  // All sums of states and tapes up to the room, ascending.
  static std::vector<std::int64_t> filled_rows(const Units& u) {
    std::vector<bool> is_filled(index(u.room) + 1);
    std::vector<std::int64_t> rows;
    for (std::int64_t m = 0; m <= u.room; ++m) {
      const bool filled = m == 0 || (m >= u.state && is_filled[index(m - u.state)]) ||
                          (m >= u.tape && is_filled[index(m - u.tape)]);
      is_filled[index(m)] = filled;
      if (filled) rows.push_back(m);
    }
    return rows;
  }
  std::size_t row_of(std::int64_t m) const {
    return index(std::upper_bound(rows_.begin(), rows_.end(), m) - rows_.begin()) - 1;
  }

  // The hull of row m; of nothing where there is no such row.
  Hull hull(const std::vector<Row>& cost, std::int64_t m) const {
    Hull hull;
    if (m < 0) return hull;
    for (const Cost c : cost[row_of(m)]) hull.add(finite(c));
    return hull;
  }
  static double finite(Cost cost) {
    return cost >= kNever ? std::numeric_limits<double>::infinity() : static_cast<double>(cost);
  }

  // Fills one row in rising t: head(y) = y + C(y,m) for the part left of the cut, with the load of its
  // start. Nothing to the left is the caller's case: it loads nothing, and a function with that jump
  // would lie far above its hull.
  struct Filling {
    double copy;
    Hull head;
    CutSearch by_state{kGain, kTried}, by_tape{kGain, kTried};

    explicit Filling(double forwards) : copy(forwards) {
      head.add(copy > 0 ? std::numeric_limits<double>::infinity() : 0);
    }
    void improve(std::int64_t t, const Hull& state, const Hull& tape, double& best,
                 std::int32_t& cut) {
      const std::int64_t y = by_state.find(head, state, t, 1, t - 1, copy, best);
      if (y >= 0) cut = static_cast<std::int32_t>(y);
      // A kept tape costs the steps left of it and its own.
      const std::int64_t left = by_tape.find(head, tape, t - 1, 0, t - 1, 1, best);
      if (left >= 0) cut = -static_cast<std::int32_t>(left + 1);
    }
    void add(std::int64_t t, double best) { head.add(static_cast<double>(t) + best + copy); }
  };

  void fill_free(std::int64_t m) {
    const Hull state = release_ ? hull(kept_[1].cost, m) : hull(kept_[0].cost, m - u_.state);
    const Hull tape = hull(kept_[0].cost, m - u_.tape);
    Row& cost = kept_[0].cost.emplace_back(columns_, 0);
    Cuts& cut = kept_[0].cut.emplace_back(columns_, 0);
    Filling filling(static_cast<double>(copy_));
    for (std::size_t t = 1; t < columns_; ++t) {
      const auto steps = static_cast<std::int64_t>(t);
      double best = again(steps, cost);
      filling.improve(steps, state, tape, best, cut[t]);
      const double tape_first = first_tape(m, t);
      if (tape_first < best) {
        best = tape_first;
        cut[t] = -1;
      }
      cost[t] = static_cast<Cost>(best);
      filling.add(steps, best);
    }
  }

  void fill_charged(std::int64_t m) {
    const Hull state = hull(kept_[1].cost, m - u_.state);
    const Hull tape = hull(kept_[0].cost, m - u_.state - u_.tape);
    Row& cost = kept_[1].cost.emplace_back(columns_, 0);
    Cuts& cut = kept_[1].cut.emplace_back(columns_, 0);
    const bool stays = m >= u_.state;
    Filling filling(static_cast<double>(copy_));
    for (std::size_t t = 1; t < columns_; ++t) {
      const auto steps = static_cast<std::int64_t>(t);
      double best = t == 1 ? 1 : first_tape(m, t);
      if (!std::isinf(best) && t > 1) cut[t] = -1;
      if (stays && again(steps, cost) < best) {
        best = again(steps, cost);
        cut[t] = 0;
      }
      filling.improve(steps, state, tape, best, cut[t]);
      cost[t] = std::isinf(best) ? kNever : static_cast<Cost>(best);
      filling.add(steps, best);
    }
  }

  // All but the last step first, then that one from the start.
  double again(std::int64_t t, const Row& cost) const {
    const double load = t > 1 ? static_cast<double>(copy_) : 0;
    return static_cast<double>(t) + finite(cost[index(t - 1)]) + load;
  }

  // The tape of the first step is kept: the start is needed no more.
  double first_tape(std::int64_t m, std::size_t t) const {
    if (t == 1 || m < u_.tape) return std::numeric_limits<double>::infinity();
    return 1 + finite(kept_[0].cost[row_of(m - u_.tape)][t - 1]);
  }

  Units u_;
  std::size_t columns_;
  std::vector<std::int64_t> rows_;  // units of memory
  bool release_;
  Cost copy_;
  std::array<Tables, 2> kept_;
};

// table_[j,m] = A_j(m), no more than the steps.
class Capacities : public UniformMixPolicy {
 public:
  Capacities(std::int64_t steps, const Units& units)
      : u_(units), steps_(steps), columns_(static_cast<std::size_t>(units.room) + 1) {
    table_.assign(columns_, 0);
    while (table_.back() < steps && table_.size() < kCapacities) add_row();
  }

  Choice choose(const Segment& s) const override {
    if (all_fit(s, u_)) return {};
    const std::int64_t t = s.steps();
    const std::int64_t m = s.room;
    const bool state = m >= u_.state;
    const bool tape = m >= u_.tape;
    if (!state && !tape) return restart(s);
    const std::int64_t by_state = state ? split_cost(t, m, m - u_.state, 0) : kUnlimited;
    const std::int64_t by_tape = tape ? split_cost(t, m, m - u_.tape, 1) : kUnlimited;
    if (by_tape <= by_state) return keep(s, split(t, m, m - u_.tape, 1), true, u_);
    return keep(s, split(t, m, m - u_.state, 0), false, u_);
  }

  std::int64_t units_in(Bytes room) const override { return u_.in(room); }
  // The sum over j of what A_j leaves over: no plan of the class runs fewer forwards.
  std::int64_t forwards(std::int64_t t, std::int64_t m) const override {
    std::int64_t sum = 0;
    for (std::size_t j = 0; j < rows() && at(j, m) < t; ++j) sum += t - at(j, m);
    return sum;
  }

 private:
  std::int64_t at(std::size_t j, std::int64_t m) const {
    return table_[j * columns_ + static_cast<std::size_t>(m)];
  }
  std::size_t rows() const { return table_.size() / columns_; }

  void add_row() {
    const std::size_t before = table_.size() - columns_;
    const auto state = static_cast<std::size_t>(u_.state);
    const auto tape = static_cast<std::size_t>(u_.tape);
    table_.resize(table_.size() + columns_);
    std::int64_t* const row = &table_[before + columns_];
    for (std::size_t m = 0; m < columns_; ++m) {
      std::int64_t right = 1;
      if (m >= state) right = std::max(right, row[m - state]);
      if (m >= tape) right = std::max(right, 1 + row[m - tape]);
      row[m] = std::min(table_[before + m] + right, steps_);
    }
  }

  // How many of t steps run at most j times when the right part has `rest` units and a tape is kept
  // between or not.
  std::int64_t reach(std::size_t j, std::int64_t m, std::int64_t rest, std::int64_t tape) const {
    return j == 0 ? 0 : at(j - 1, m) + tape + at(std::min(j, rows() - 1), rest);
  }

  std::int64_t split_cost(std::int64_t t, std::int64_t m, std::int64_t rest,
                          std::int64_t tape) const {
    std::int64_t sum = 0;
    for (std::size_t j = 0; j <= rows(); ++j) {
      const std::int64_t reached = reach(j, m, rest, tape);
      if (reached >= t) break;
      sum += t - reached;
    }
    return sum;
  }

  // The left part as long as its capacity allows while the right part keeps what it can do in one
  // run less.
  std::int64_t split(std::int64_t t, std::int64_t m, std::int64_t rest, std::int64_t tape) const {
    std::size_t r = 1;
    while (r < rows() && reach(r, m, rest, tape) < t) ++r;
    const std::int64_t left_most = at(std::min(r - 1, rows() - 1), m);
    const std::int64_t right_least = at(r - 1, rest);
    const std::int64_t right_most = at(std::min(r, rows() - 1), rest);
    std::int64_t left = std::min(left_most, t - tape - right_least);
    left = std::max({left, t - tape - right_most, std::int64_t{1} - tape});
    return std::min(left + tape, t - 1);
  }

  Units u_;
  std::int64_t steps_;
  std::size_t columns_;
  Table<std::int64_t> table_;
};

}  // namespace

std::shared_ptr<const UniformMixPolicy> uniform_mix_policy(std::int64_t steps, Bytes state,
                                                           Bytes tape, Bytes room, bool release,
                                                           double table_entries, double copy) {
  const Units u = to_units(steps, state, tape, std::max<Bytes>(room, 0));
  const auto n = static_cast<double>(steps);
  const auto m = static_cast<double>(u.room) + 1;
  // 32-bit forwards are enough below 60 000 steps.
  const bool exact = n * m <= table_entries && steps < 60'000;
  if (exact && copy > 0) {
    return std::make_shared<UniformMixTable<double>>(steps, u, release, copy);
  }
  if (exact) return std::make_shared<UniformMixTable<std::int32_t>>(steps, u, release, 0);
  return std::make_shared<Capacities>(std::min(steps, kMostCapacity), u);
}

Draft draft_store_all(const Problem& p) {
  struct All : Policy {
    Choice choose(const Segment&) const override { return {}; }
  };
  Draft draft = descend(std::make_shared<All>(), p.root());
  draft.optimal = true;
  draft.at_least = unavoidable_seconds(p.chain);
  return draft;
}

Draft draft_uniform_mix(const Problem& p, bool release) {
  const auto policy = uniform_mix_policy(p.steps(), p.step.state, p.step.tape, p.room(), release,
                                         kTableEntries, release ? p.copy_forwards() : 0);
  Segment root = p.root();
  root.room = policy->units_in(p.room());
  Draft draft = descend(policy, root);
  draft.at_least = unavoidable_seconds(p.chain);
  // Not every cut is tried where copies count.
  if (p.chain.is_uniform() && !(release && p.copy_seconds() > 0)) {
    const std::int64_t again = policy->forwards(p.steps(), root.room) - p.steps();
    draft.at_least += static_cast<double>(again) * p.step.forward;
  }
  return draft;
}

Draft draft_msm(const Problem& p) { return draft_uniform_mix(p, false); }

Bytes least_store_all(const Problem& p) {
  Bytes least = 0;
  const std::int64_t n = p.steps();
  if (n == 0) return p.machine.working.value_or(0);
  const Bytes tapes = p.chain.tape_bytes(0, n) - (p.machine.working ? p.chain.at(n - 1).tape : 0);
  if (p.machine.working) return add_bytes(tapes, *p.machine.working);
  // Recording passes every state with the last step's adjoint; reversing has no live state.
  least = add_bytes(
      tapes, add_bytes(p.step.live_bytes(), add_bytes(p.chain.at(n - 1).adjoint, p.step.scratch)));
  Bytes held = 0;
  for (std::int64_t i = 0; i < (p.chain.is_uniform() ? 1 : n); ++i) {
    held = add_bytes(held, p.chain.at(i).tape);
    least =
        std::max(least, add_bytes(held, add_bytes(p.chain.at(i).adjoint, p.chain.at(i).scratch)));
  }
  return least;
}

}  // namespace ebb
