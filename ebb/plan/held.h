// SPDX-License-Identifier: Apache-2.0
// What a place holds, for replay: single items with the times of their transfers, and ranges of
// tapes. Which items may be there and what they weigh is replay's business.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ebb {

// When the transfers of an item end.
struct Times {
  double ready = 0;  // it has arrived
  double free = 0;   // no transfer into or out of it is under way; never before ready
};

// Items by step (0 or more), each with its times. A hash table: O(1) for each item, and no
// allocation unless more items are held than ever before. Pointers hold until the next insert or
// erase.
class HeldItems {
 public:
  bool empty() const { return size_ == 0; }
  // null: it is not held.
  Times* find(std::int64_t step);
  void insert(std::int64_t step, Times times);  // not held so far
  void erase(std::int64_t step);                // held or not
  // Over the items held in [from,to): O(the smaller of the range and the table).
  double latest_free(std::int64_t from, std::int64_t to) const;  // 0 when there are none
  void erase(std::int64_t from, std::int64_t to);
  // One of the items held.
  std::int64_t any() const;

 private:
  static constexpr std::int64_t kNone = -1;
  struct Slot {
    std::int64_t step = kNone;
    Times times;
  };
  std::size_t home(std::int64_t step) const;
  std::size_t slot_of(std::int64_t step) const;  // its slot, or the empty one where it would go
  bool shorter_than_table(std::int64_t from, std::int64_t to) const;
  void erase_slot(std::size_t hole);
  void grow();

  std::vector<Slot> slots_;  // a power of two, at most half full
  std::size_t size_ = 0;
  int shift_ = 64;
};

// Tapes as ranges of steps, so that a million tapes recorded at once are one entry. Fast where
// ranges come and go at the upper end, O(ranges) elsewhere.
class TapeRanges {
 public:
  bool empty() const { return ranges_.empty(); }
  bool holds(std::int64_t step) const { return first_held(step) == step; }
  // The first tape held from `step` on; the largest number there is when there is none.
  std::int64_t first_held(std::int64_t step) const;
  // The last tape before `step` that is not held; below 0 when all are.
  std::int64_t last_missing(std::int64_t step) const;
  void insert(std::int64_t from, std::int64_t to);  // none of them held so far
  void erase(std::int64_t from, std::int64_t to);   // all of them held
  // One of the tapes held.
  std::int64_t any() const { return ranges_.back().from; }

 private:
  struct Range {
    std::int64_t from, to;
  };
  std::size_t first_ending_after(std::int64_t step) const;

  std::vector<Range> ranges_;  // ascending; no two overlap or touch
};

}  // namespace ebb
