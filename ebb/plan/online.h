// SPDX-License-Identifier: Apache-2.0
// Online: the length is not known while the forward sweep runs; slots only.
//
// Stumm & Walther 2010 (Algorithm I, optimal for up to (c+1)(c+2)/2 steps with c slots); Wang,
// Moin, Iaccarino 2009 (minimal repetition, beyond that). Model: c slots in fast, the initial
// state's included. The sweep keeps states so that whenever it ends the way back is short; the way
// back is the binomial optimum inside each gap, with every slot that is free by then. The steps
// after the last kept state run once more than a plan that knew the length would run them. Departs
// from the papers: nothing fails at small lengths; with one slot nothing but the initial state is
// kept.
#pragma once

#include "ebb/plan/draft.h"

namespace ebb {

Draft draft_online(const Problem& problem);
Bytes least_online(const Problem& problem);

// Which states the sweep keeps. Private to the room but for tests.
class OnlineSlots {
 public:
  explicit OnlineSlots(std::int64_t slots);

  // The next state to keep; kUnlimited when there is none.
  std::int64_t next() const;
  // Keeps it; returns the state that leaves for it, if any.
  std::optional<std::int64_t> keep();
  // Kept states, ascending; state 0 is always there.
  std::vector<std::int64_t> kept() const;

 private:
  std::optional<std::int64_t> keep_in_block(std::int64_t step);
  std::int64_t keep_by_level(std::int64_t step);
  // Algorithm I keeps states in blocks that get shorter: the first of a block stays, the others
  // leave for the next block.
  bool in_blocks() const { return block_keeps_ > 0; }

  std::int64_t slots_;
  std::int64_t last_ = 0;  // the latest state kept
  std::int64_t block_begin_ = 0, block_keeps_;
  std::vector<std::int64_t> firsts_{0}, leaving_, block_;
  // Minimal repetition afterwards.
  struct Slot {
    std::int64_t step;
    std::int32_t level;
  };
  std::vector<Slot> slotted_;
};

}  // namespace ebb
