// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/fastest.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "ebb/core/error.h"
#include "ebb/plan/bound.h"
#include "ebb/plan/judged.h"

namespace ebb {
namespace {

// Drafts in order of what they take at least, judged until none left can win.
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

Plan fastest_plan(const Row& self, const Chain& chain, const Platform& platform,
                  const PlanOptions& options) {
  return Auto(self, chain, platform, options).plan();
}

}  // namespace ebb
