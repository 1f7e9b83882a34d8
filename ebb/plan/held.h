// SPDX-License-Identifier: Apache-2.0
// What a place holds, for replay: single items with the times of their transfers, and ranges of
// tapes. Which items may be there and what they weigh is replay's business.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ebb/core/bytes.h"
#include "ebb/core/step_table.h"

namespace ebb {

// When the transfers of an item end.
struct Times {
  double ready = 0;  // it has arrived
  double free = 0;   // no transfer into or out of it is under way; never before ready
};

using HeldItems = StepTable<Times>;

// What fast or one slow tier holds. The bytes stay at kUnlimited once they got there: no smaller
// limit has been passed by, and the peak is known.
struct HeldPlace {
  HeldItems states;
  HeldItems tapes;  // in fast only those with transfers
  Bytes bytes = 0;
  Bytes allowed = kUnlimited;
  double write_lane = 0, read_lane = 0;  // when they are free; without duplex only the first

  void hold(Bytes more) { bytes = add_bytes(bytes, more); }
  void release(Bytes less) { bytes = bytes == kUnlimited ? kUnlimited : bytes - less; }
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
