// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/slot_mix.h"

#include <algorithm>
#include <utility>

#include "ebb/core/table_memory.h"
#include "ebb/plan/cuts.h"

namespace ebb {
namespace {

using Kind = Choice::Kind;

class SlotMixPolicy : public Policy {
 public:
  // For the whole chain, at least.
  virtual std::int64_t forwards() const = 0;

  Choice choose(const Segment& s) const override {
    Choice c;
    if (s.steps() <= s.room + 1) return c;
    const std::int64_t at = cut(s.steps(), s.room);
    c.right_room = s.room - 1;
    c.left_room = s.room;
    c.at = s.a + at;
    if (at == 1) {
      c.kind = Kind::keep_tape;
    } else if (!s.owned) {
      // The tape before this segment does not restart it: whoever needs the start keeps it.
      c.kind = Kind::keep_start;
      c.right_room = s.room;
    } else {
      c.kind = at == 0 ? Kind::restart : Kind::keep_state;
    }
    return c;
  }

 private:
  // For segments longer than slots + 1: 0 restart, 1 keep the tape of the first step, i >= 2 keep
  // state i.
  virtual std::int64_t cut(std::int64_t steps, std::int64_t slots) const = 0;
};

// Maddison's recurrence.
class SlotMixTable : public SlotMixPolicy {
 public:
  SlotMixTable(std::int64_t steps, std::int64_t slots) {
    const auto n = static_cast<std::size_t>(steps);
    cut_.resize(static_cast<std::size_t>(slots) + 1);
    for (std::size_t s = 1; s < cut_.size(); ++s) {
      below_ = std::exchange(cost_, std::vector<std::int32_t>(n + 1, 0));
      cut_[s].assign(n + 1, 0);
      fill(s);
    }
  }

  std::int64_t forwards() const override { return cost_.empty() ? 1 : cost_.back(); }

 private:
  void fill(std::size_t s) {
    std::vector<std::int32_t>& cost = cost_;
    Hull head;
    Hull rest;
    CutSearch search(1);
    if (s > 1) {
      for (const std::int32_t c : below_) rest.add(c);
    }
    head.add(0);
    for (std::size_t t = 1; t < cost.size(); ++t) {
      const auto steps = static_cast<std::int32_t>(t);
      if (t <= s + 1) {
        cost[t] = steps;
      } else if (s == 1) {
        cost[t] = steps + cost[t - 1];
      } else {
        double best = 1 + below_[t - 1];
        const std::int64_t i = search.find(head, rest, steps, 2, steps - 1, 0, best);
        cost[t] = static_cast<std::int32_t>(best);
        cut_[s][t] = i < 0 ? 1 : static_cast<std::int32_t>(i);
      }
      head.add(steps + cost[t]);
    }
  }

  std::int64_t cut(std::int64_t steps, std::int64_t slots) const override {
    return cut_[static_cast<std::size_t>(slots)][static_cast<std::size_t>(steps)];
  }

  std::vector<std::int32_t> cost_, below_;  // [t], of the last row and of the one before it
  std::vector<Table<std::int32_t>> cut_;    // [s][t]
};

// For long chains: B_j(s), the longest chain whose steps all run at most j times, by the same
// recurrence. Since the costs are not convex the cuts are good, not optimal.
class SlotMixCapacities : public SlotMixPolicy {
 public:
  SlotMixCapacities(std::int64_t steps, std::int64_t slots)
      : steps_(steps), columns_(static_cast<std::size_t>(slots) + 1) {
    table_.assign(columns_, 1);
    while (table_.back() < steps && table_.size() < kCapacities) add_row();
  }

  // Every step runs once.
  std::int64_t forwards() const override { return steps_; }

 private:
  std::int64_t at(std::size_t j, std::int64_t s) const {
    return table_[j * columns_ + static_cast<std::size_t>(s)];
  }
  std::size_t rows() const { return table_.size() / columns_; }

  std::int64_t cut(std::int64_t t, std::int64_t s) const override {
    if (s == 1) return 0;
    std::size_t r = 1;
    while (r + 1 < rows() && at(r, s) < t) ++r;
    const std::int64_t rest = at(r, s - 1);
    if (t - 1 <= rest) return 1;
    const std::int64_t left = std::min(at(r - 1, s), t - at(r - 1, s - 1));
    return std::clamp<std::int64_t>(std::max(left, t - rest), 2, t - 1);
  }

  void add_row() {
    const auto j = static_cast<std::int64_t>(rows());
    const std::size_t before = table_.size() - columns_;
    table_.resize(table_.size() + columns_, 1);
    std::int64_t* const row = &table_[before + columns_];
    for (std::size_t s = 1; s < columns_; ++s) {
      const auto slots = static_cast<std::int64_t>(s);
      const std::int64_t cut_last = std::max(1 + row[s - 1], table_[before + s] + row[s - 1]);
      row[s] = std::min(j == 1 ? slots + 1 : (s == 1 ? j + 1 : cut_last), steps_);
    }
  }

  std::int64_t steps_;
  std::size_t columns_;
  Table<std::int64_t> table_;  // [j,s]
};

}  // namespace

Draft draft_mixed(const Problem& p) {
  const Bytes slot = std::max(p.step.state, p.step.tape);
  const std::int64_t slots =
      std::clamp<std::int64_t>(p.room() / slot, 0, std::max<std::int64_t>(p.steps() - 1, 0));
  const auto n = static_cast<double>(p.steps());
  const auto m = static_cast<double>(slots);
  const bool exact = n * m <= kTableEntries && p.steps() < 60'000;
  std::shared_ptr<SlotMixPolicy> policy;
  if (exact) {
    policy = std::make_shared<SlotMixTable>(p.steps(), slots);
  } else {
    policy = std::make_shared<SlotMixCapacities>(p.steps(), slots);
  }
  const std::int64_t forwards = policy->forwards();
  Segment root = p.root();
  root.room = slots;
  Draft draft = descend(std::move(policy), root);
  draft.parameters = {{"slots", slots}};
  draft.optimal = exact && p.is_textbook() && p.step.record >= p.step.forward;
  draft.at_least = unavoidable_seconds(p.chain);
  if (p.chain.is_uniform()) {
    draft.at_least += static_cast<double>(forwards - p.steps()) * p.step.forward;
  }
  return draft;
}

Bytes least_mixed(const Problem& p) {
  const Bytes slot = std::max(p.step.state, p.step.tape);
  return add_bytes(p.working(), p.steps() <= 1 ? 0 : slot);
}

}  // namespace ebb
