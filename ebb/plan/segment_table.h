// SPDX-License-Identifier: Apache-2.0
// The tables behind chain_mix, over every segment of a list of items. An item is a step, or a group
// of steps that has a table of its own, or one that is recorded whole. Private to the room.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ebb/core/table_memory.h"
#include "ebb/plan/chain.h"
#include "ebb/plan/descent.h"
#include "ebb/plan/machine.h"

namespace ebb {

// How the start of a segment is held (chain_mix.h).
enum class StartKind : std::uint8_t { free, kept, fresh };

// The items of a chain and what actions on them hold and cost.
class Items {
 public:
  // cuts: ascending steps; item j is [cuts[j], cuts[j+1]).
  Items(const Chain& chain, const Machine& machine, std::vector<std::int64_t> cuts);

  // One way to go on with items [i,k): advance to cut j and keep the state there, or advance to cut
  // j-1, record item j-1 and keep its tapes.
  struct Option {
    std::size_t j;
    bool tape;
    Bytes need;      // held by its own actions, a kept start included
    Bytes extra;     // kept while the right part is reversed
    double seconds;  // loading the start for the left part included

    // Where the left part ends.
    std::size_t end() const { return tape ? j - 1 : j; }
    StartKind right() const { return tape ? StartKind::free : StartKind::fresh; }
  };
  // Calls visit for every option of a segment whose start is free or kept.
  template <class Visit>
  void options(std::size_t i, std::size_t k, bool kept, const Visit& visit) const;

  std::size_t count() const { return cuts_.size() - 1; }
  std::int64_t cut(std::size_t i) const { return cuts_[i]; }
  // The item that holds a step, and the first cut at or after it.
  std::size_t item_of(std::int64_t step) const;
  std::size_t cut_from(std::int64_t step) const;
  // A kept start of items [i,k), while it is copied to or from `work`.
  Bytes load_need(std::size_t i, std::size_t k) const;
  // Recording a whole item that is next to be reversed, and its seconds.
  Bytes record_need(std::size_t i) const;
  double record_seconds(std::size_t i) const;
  // Copying the state at cut i within fast memory.
  double copy_seconds(std::size_t i) const;
  // The choice that an option stands for, rooms left to the caller.
  Choice choice(const Option& option, bool kept) const;

 private:
  Bytes beside(Bytes live, Bytes scratch, std::int64_t last) const;

  const Chain& chain_;
  std::optional<Bytes> working_;
  double copy_rate_;
  std::vector<std::int64_t> cuts_;
  std::vector<Bytes> live_, scratch_;  // the largest in each item
};

template <class Visit>
void Items::options(std::size_t i, std::size_t k, bool kept, const Visit& visit) const {
  const std::int64_t a = cuts_[i];
  const std::int64_t last = cuts_[k] - 1;
  const Bytes start = kept ? chain_.state(a) : 0;
  const double load = copy_seconds(i);
  Bytes live = 0, scratch = 0, reach = 0;
  for (std::size_t j = i + 1; j < k; ++j) {
    const bool first = j == i + 1;
    const std::int64_t from = cuts_[j - 1];
    const Bytes tapes = chain_.tape_bytes(from, cuts_[j]);
    // Without a left part the start is dropped before the first record.
    const Bytes held = first ? 0 : start;
    const Bytes recording = add_bytes(beside(live_[j - 1], scratch_[j - 1], last), tapes);
    const double before = first ? 0 : chain_.call() + chain_.forward_seconds(a, from) + load;
    visit(Option{j, true, add_bytes(held, std::max(reach, recording)), add_bytes(held, tapes),
                 before + record_seconds(j - 1)});
    live = std::max(live, live_[j - 1]);
    scratch = std::max(scratch, scratch_[j - 1]);
    reach = beside(live, scratch, last);
    visit(Option{j, false, add_bytes(start, reach), start,
                 chain_.call() + chain_.forward_seconds(a, cuts_[j]) + load});
  }
}

// Least seconds for every amount of memory, in units of `unit` bytes, 0..units.
class SegmentTable {
 public:
  // groups: one for each item, or none.
  SegmentTable(const Items& items, Bytes unit, std::int64_t units,
               std::vector<std::unique_ptr<SegmentTable>> groups = {});

  // Infinite when items [i,k) do not fit into m units.
  float seconds(StartKind kind, std::size_t i, std::size_t k, std::int64_t m) const;
  // Segment::level is the StartKind, room the units.
  Choice choose(const Segment& segment) const;
  const Items& items() const { return items_; }

 private:
  void fill_leaf(std::size_t i);
  void fill(std::size_t i, std::size_t k);
  void apply(float* to, const Items::Option& option, std::size_t i, std::size_t k, bool kept) const;
  const float* row(StartKind kind, std::size_t i, std::size_t k) const;
  float* row(StartKind kind, std::size_t i, std::size_t k);
  std::int64_t in_units(Bytes bytes) const;

  const Items& items_;
  Bytes unit_;
  std::int64_t units_;
  std::vector<std::unique_ptr<SegmentTable>> groups_;
  Table<float> table_;
};

// Least memory, exact in bytes, whatever the time.
class LeastTable {
 public:
  explicit LeastTable(const Items& items, std::vector<std::unique_ptr<LeastTable>> groups = {});

  Bytes bytes(StartKind kind, std::size_t i, std::size_t k) const;
  Choice choose(const Segment& segment) const;
  const Items& items() const { return items_; }

 private:
  Bytes with(const Items::Option& option, std::size_t i, std::size_t k, bool kept) const;
  Bytes& at(StartKind kind, std::size_t i, std::size_t k);
  void fill_leaf(std::size_t i);
  void fill(std::size_t i, std::size_t k);

  const Items& items_;
  std::vector<std::unique_ptr<LeastTable>> groups_;
  Table<Bytes> table_;
};

}  // namespace ebb
