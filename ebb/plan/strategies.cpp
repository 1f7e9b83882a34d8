// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/strategies.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "ebb/core/error.h"
#include "ebb/plan/bound.h"
#include "ebb/plan/replay.h"
#include "ebb/plan/rows.h"

namespace ebb {
namespace {

// Replay adds up seconds in another order than the bound; what differs by rounding alone is equal.
Bound without_rounding(Bound bound, double seconds) {
  if (bound.seconds > seconds && bound.seconds <= seconds * (1 + 1e-9)) bound.seconds = seconds;
  return bound;
}

// Gives up on plans that are too long to compare.
class ShortCursor : public Cursor {
 public:
  explicit ShortCursor(std::unique_ptr<Cursor> cursor) : cursor_(std::move(cursor)) {}
  bool next(Action& action) override {
    if (++taken_ > kMost) {
      fail(ErrorCode::unavailable, "the plan has more than ", kMost,
           " actions, too many to predict; take strategy revolve, a larger budget or larger steps");
    }
    return cursor_->next(action);
  }
  void finish(std::int64_t n) override { cursor_->finish(n); }

 private:
  // Some seconds of replay.
  static constexpr std::int64_t kMost = 40'000'000;
  std::unique_ptr<Cursor> cursor_;
  std::int64_t taken_ = 0;
};

std::string rows_without_length() {
  std::string names;
  for (const Row& row : strategy_rows()) {
    if (!row.traits.length_unknown) continue;
    names += (names.empty() ? "" : " and ") + std::string(row.row.name);
  }
  return names;
}

void check_options(const Row& row, const Chain& chain, const PlanOptions& o) {
  const auto name = row.row.name;
  if (o.slots && o.budget)
    fail(ErrorCode::invalid_argument, "slots and budget contradict each other; give one");
  if (o.slots && o.working) {
    fail(ErrorCode::invalid_argument,
         "working does not go with slots, which charge no working set; give budget");
  }
  if (o.budget && *o.budget < 0)
    fail(ErrorCode::invalid_argument, "budget is ", *o.budget, "; it must be 0 or more");
  if (o.working && *o.working < 0)
    fail(ErrorCode::invalid_argument, "working is ", *o.working, "; it must be 0 or more");
  if (o.slots && *o.slots < 0)
    fail(ErrorCode::invalid_argument, "slots is ", *o.slots, "; it must be 0 or more");
  if (o.slots && row.row.keeps_tapes) {
    fail(ErrorCode::invalid_argument, "slots count states, and ", name,
         " keeps tapes; give budget");
  }
  for (std::int64_t i = 1; o.slots && !chain.is_uniform() && i < chain.steps(); ++i) {
    if (chain.state(i) == chain.state(0)) continue;
    fail(ErrorCode::invalid_argument, "slots count equal states, and the state before step ", i,
         " has ", chain.state(i), " bytes, that before step 0 ", chain.state(0), "; give budget");
  }
  if (!o.intervals.empty() && row.traits.intervals == Traits::Intervals::none) {
    fail(ErrorCode::invalid_argument, "interval does not go with ", name);
  }
  for (std::size_t i = 0; i < o.intervals.size(); ++i) {
    if (o.intervals[i] >= 1 && (i == 0 || o.intervals[i] < o.intervals[i - 1])) continue;
    fail(ErrorCode::invalid_argument, "interval ", o.intervals[i],
         ": intervals must be 1 or more, each shorter than the one before");
  }
  if (o.intervals.size() > 1 && row.traits.intervals == Traits::Intervals::one) {
    fail(ErrorCode::invalid_argument, "interval: ", name, " takes one");
  }
  if (o.period && !row.traits.period)
    fail(ErrorCode::invalid_argument, "period goes with periodic_disk alone");
  if (o.period && *o.period < 1)
    fail(ErrorCode::invalid_argument, "period is ", *o.period, "; it must be 1 or more");
  if (o.length_unknown && !row.traits.length_unknown) {
    fail(ErrorCode::invalid_argument, "an unknown length goes with ", rows_without_length(),
         ", not with ", name);
  }
}

Problem problem_for(const Row& row, const Chain& chain, const Platform& platform,
                    const PlanOptions& o) {
  Problem p{chain, {platform, o.working}, o, chain.typical()};
  p.machine.sync = o.sync;
  p.machine.tapes_stay = o.tapes_stay;
  p.machine.start_charged = row.traits.charges_start;
  if (o.budget) p.machine.platform.fast = *o.budget;
  if (o.slots) {
    p.machine.platform.fast = scale_bytes(p.step.state, *o.slots);
    p.machine.working = 0;
    p.machine.start_charged = true;
    p.machine.states_only = true;
  }
  return p;
}

// A row that can answer this question at all.
bool can_serve(const Row& row, const Problem& p) {
  if (row.row.needs_tier && p.tiers().empty()) return false;
  return !(p.options.slots && row.row.keeps_tapes);
}

void check_served(const Row& row, const Problem& p) {
  if (can_serve(row, p)) return;
  throw Error(
      ErrorCode::invalid_argument,
      "strategy " + std::string(row.row.name) + " needs a slow tier and the platform has none", {},
      "add one or take another strategy");
}

Plan judged(const Row& row, const Problem& p, Draft draft) {
  Plan plan;
  plan.strategy = row.row.name;
  plan.parameters = std::move(draft.parameters);
  plan.optimal = draft.optimal;
  plan.machine = p.machine;
  plan.length_unknown = p.options.length_unknown;
  plan.set_start(std::move(draft.start));
  if (draft.forecast) {
    plan.prediction = std::move(*draft.forecast);
  } else {
    ShortCursor cursor(plan.cursor());
    plan.prediction = replay(p.chain, p.machine, cursor, {p.options.length_unknown});
  }
  return plan;
}

Bytes least_of(const Row& row, const Chain& chain, const Platform& platform, const PlanOptions& o) {
  if (!row.is_auto()) {
    const Problem p = problem_for(row, chain, platform, o);
    return can_serve(row, p) ? row.least(p) : kUnlimited;
  }
  Bytes least = kUnlimited;
  for (const Row& other : strategy_rows()) {
    if (other.is_auto() || other.is_covered(platform.tiers.size())) continue;
    least = std::min(least, least_of(other, chain, platform, o));
  }
  return least;
}

[[noreturn]] void refuse(const Row& row, const Problem& p, Bytes least) {
  std::ostringstream text;
  text << "strategy " << row.row.name << " does not fit: ";
  if (least == kUnlimited) {
    text << "no budget helps, since the slow tiers cannot hold what it keeps there";
    throw Error(ErrorCode::infeasible_budget, text.str(), {},
                "give a tier more capacity, or take strategy auto");
  }
  if (p.options.slots) {
    const std::int64_t slots = least / p.step.state;
    text << "it needs at least " << slots << (slots == 1 ? " slot" : " slots") << ", there are "
         << *p.options.slots;
    throw Error(ErrorCode::infeasible_budget, text.str(), least,
                "raise slots, or add a slow tier and take h_revolve");
  }
  text << "it needs at least " << least << " bytes (" << format_bytes(least)
       << ") of memory, the budget is " << p.machine.platform.fast << " ("
       << format_bytes(p.machine.platform.fast) << ")";
  throw Error(ErrorCode::infeasible_budget, text.str(), least,
              row.is_auto() ? "raise the budget, or take a smaller step"
                            : "raise the budget, or take strategy auto or a smaller step");
}

Plan plan_with(const Row& row, const Chain& chain, const Platform& platform, const PlanOptions& o) {
  const Problem p = problem_for(row, chain, platform, o);
  check_served(row, p);
  const Bytes least = row.least(p);
  if (least > p.machine.platform.fast || least == kUnlimited) refuse(row, p, least);
  Plan plan = judged(row, p, row.draft(p));
  plan.bound = without_rounding(bound(chain, p.machine), plan.prediction.seconds);
  return plan;
}

// The fastest of all rows: drafts in order of what they take at least, judged until none left can
// win.
class Auto {
 public:
  Auto(const Row& self, const Chain& chain, const Platform& platform, const PlanOptions& options)
      : self_(self), chain_(chain), platform_(platform), options_(options), own_(problem(self)) {
    floor_ = bound(chain, own_.machine);
  }

  Plan plan() {
    try_rows();
    if (!best_) refuse(self_, own_, least_);
    if (std::isfinite(platform_.copy_rate)) try_smaller_budgets();
    best_->bound = without_rounding(floor_, best_->prediction.seconds);
    // The model of auto is the whole machine.
    best_->optimal = best_->gap() < 1e-12;
    return std::move(*best_);
  }

 private:
  static constexpr std::int64_t kShort = 64;  // steps

  struct Entry {
    const Row* row;
    Draft draft;
  };

  Problem problem(const Row& row) const { return problem_for(row, chain_, platform_, options_); }
  // Sums of the same seconds differ by rounding.
  bool reaches_floor(double seconds) const { return seconds <= floor_.seconds * (1 + 1e-9); }
  bool done() const { return best_ && reaches_floor(best_->prediction.seconds); }
  bool can_win(double at_least) const {
    return !best_ || at_least < best_->prediction.seconds * (1 - 1e-9);
  }

  void try_rows() {
    Machine alone = problem(self_).machine;
    alone.platform.tiers.clear();
    floor_without_tiers_ = bound(chain_, alone);
    // Tables are often not worth their time.
    for (const bool tables : {false, true}) {
      for (const Row& row : strategy_rows()) {
        if (!row.is_auto() && row.traits.table == tables && !done()) draft(row);
      }
      judge_drafts();
    }
  }

  void draft(const Row& row) {
    const Problem p = problem(row);
    if (row.is_covered(platform_.tiers.size()) || !can_serve(row, p)) return;
    const Bytes need = row.least(p);
    least_ = std::min(least_, need);
    if (need > p.machine.platform.fast || need == kUnlimited) return;
    if (row.traits.table && !can_win(floor_without_tiers_.seconds)) return;
    Entry entry{&row, row.draft(p)};
    // A closed form that reaches the bound makes all others needless.
    if (reaches_floor(entry.draft.at_least)) {
      judge(entry);
    } else {
      entries_.push_back(std::move(entry));
    }
  }

  void judge_drafts() {
    std::stable_sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
      return a.draft.at_least < b.draft.at_least;
    });
    for (Entry& entry : entries_) {
      if (done() || !can_win(entry.draft.at_least)) break;
      judge(entry);
    }
    entries_.clear();
  }

  // Where copies take time, rows that leave them out may lose by more memory. On the budgets of a
  // grid that does not depend on the asked one this cannot happen: all their plans are tried too.
  void try_smaller_budgets() {
    const Bytes asked = own_.machine.platform.fast;
    const bool slots = options_.slots.has_value();
    for (const std::int64_t less : grid_below(slots ? *options_.slots : asked)) {
      (slots ? options_.slots : options_.budget) = less;
      if (done() || !can_win(bound(chain_, problem(self_).machine).seconds)) break;
      try_rows();
    }
    best_->machine.platform.fast = asked;
  }

  // Descending: a sixteenth of what stores everything, a sixteenth of that, …; or 4, 64, 1024, …
  // slots, and of short chains every number of them.
  std::vector<std::int64_t> grid_below(std::int64_t most) const {
    const bool slots = options_.slots.has_value();
    std::vector<std::int64_t> grid;
    if (slots && chain_.steps() <= kShort) {
      for (std::int64_t k = std::min(most, chain_.steps()) - 1; k > 0; --k) grid.push_back(k);
      return grid;
    }
    std::int64_t less = slots ? std::int64_t{1} << 62 : row_named("store_all").least(own_);
    while ((less /= 16) > 0) {
      if (less < most) grid.push_back(less);
    }
    return grid;
  }

  // Plans too long to be compared are passed over.
  void judge(Entry& entry) {
    Plan plan;
    try {
      plan = judged(*entry.row, problem(*entry.row), std::move(entry.draft));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unavailable) throw;
      return;
    }
    if (can_win(plan.prediction.seconds)) best_ = std::move(plan);
  }

  const Row& self_;
  const Chain& chain_;
  const Platform& platform_;
  PlanOptions options_;
  Problem own_;
  Bound floor_, floor_without_tiers_;
  std::vector<Entry> entries_;
  std::optional<Plan> best_;
  Bytes least_ = kUnlimited;
};

}  // namespace

Plan make_plan(const Chain& chain, const Platform& platform, const PlanOptions& options) {
  const Row& row = row_named(options.strategy);
  check_platform(platform);
  check_options(row, chain, options);
  return row.is_auto() ? Auto(row, chain, platform, options).plan()
                       : plan_with(row, chain, platform, options);
}

std::optional<Bytes> least_budget(const Chain& chain, const Platform& platform,
                                  const PlanOptions& options) {
  const Row& row = row_named(options.strategy);
  check_platform(platform);
  check_options(row, chain, options);
  const Bytes least = least_of(row, chain, platform, options);
  return least == kUnlimited ? std::nullopt : std::optional(least);
}

std::int64_t largest_steps(const StepCost& step, double call, const Platform& platform,
                           const PlanOptions& options) {
  const Row& row = row_named(options.strategy);
  check_platform(platform);
  const Chain none = Chain::uniform(0, step, call);
  check_options(row, none, options);
  check_served(row, problem_for(row, none, platform, options));
  const auto fits = [&](std::int64_t steps) {
    const Chain chain = Chain::uniform(steps, step, call);
    const Bytes fast = problem_for(row, chain, platform, options).machine.platform.fast;
    const Bytes least = least_of(row, chain, platform, options);
    return least <= fast && least != kUnlimited;
  };
  constexpr std::int64_t most = 1'000'000'000;
  if (fits(most)) return kUnlimited;
  std::int64_t low = 0;
  std::int64_t high = 1;
  while (fits(high)) {
    low = high;
    high *= 2;
  }
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  // Searched intervals may suit a chain a little longer than one they do not suit.
  constexpr std::int64_t beyond = 16;
  const std::int64_t last = low + beyond;
  for (std::int64_t steps = low + 1; steps <= last; ++steps) {
    if (fits(steps)) low = steps;
  }
  return low;
}

std::vector<SweepPoint> sweep(const Chain& chain, const Platform& platform,
                              const PlanOptions& options, int points) {
  std::vector<SweepPoint> out;
  const Row& row = row_named(options.strategy);
  check_platform(platform);
  check_options(row, chain, options);
  check_served(row, problem_for(row, chain, platform, options));
  const std::optional<Bytes> least = least_budget(chain, platform, options);
  if (!least) return out;
  PlanOptions at = options;
  const StepCost step = chain.typical();
  const Bytes unit = options.slots ? step.state : 1;
  Bytes most = scale_bytes(step.state, chain.steps());
  if (!options.slots) {
    PlanOptions all = options;
    all.strategy = "store_all";
    all.intervals.clear();
    all.period.reset();
    all.length_unknown = false;
    most = least_of(row_named("store_all"), chain, platform, all);
  }
  most = std::max(most, *least);
  const double ratio =
      static_cast<double>(most) / static_cast<double>(std::max<Bytes>(*least, unit));
  for (int i = 0; i < points; ++i) {
    const double share = points == 1 ? 0 : static_cast<double>(i) / (points - 1);
    const double wish = static_cast<double>(std::max<Bytes>(*least, unit)) * std::pow(ratio, share);
    const Bytes budget =
        i == 0 ? *least
               : std::min(most, static_cast<Bytes>(wish / static_cast<double>(unit)) * unit);
    if (!out.empty() && budget <= out.back().budget) continue;
    if (options.slots) {
      at.slots = budget / unit;
    } else {
      at.budget = budget;
    }
    out.push_back({budget, make_plan(chain, platform, at)});
  }
  return out;
}

}  // namespace ebb
