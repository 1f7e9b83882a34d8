// SPDX-License-Identifier: Apache-2.0
// Online: the length is not known while the forward sweep runs; slots only.
//
// Stumm & Walther 2010 (Algorithm I, optimal for up to (c+1)(c+2)/2 steps with c slots); Wang, Moin, Iaccarino 2009
// (minimal repetition, beyond that).
// Model: c slots in fast, the initial state's included. The sweep keeps states so that whenever it ends the way back is
// short; the way back is the binomial optimum inside each gap, with every slot that is free by then. The steps after the last
// kept state run once more than a plan that knew the length would run them.
// Departs from the papers: nothing fails at small lengths; with one slot nothing but the initial state is kept.
#pragma once

#include "ebb/plan/draft.h"

namespace ebb {

Draft draft_online(const Problem& problem);
Bytes least_online(const Problem& problem);

// Which states the sweep keeps. Public for tests.
class OnlineSlots {
 public:
  explicit OnlineSlots(std::int64_t slots);

  // The next state after `step` to keep; kUnlimited when there is none.
  std::int64_t next(std::int64_t step) const;
  // Keeps state `step` (one that next() named); returns the state that leaves for it, if any.
  std::optional<std::int64_t> keep(std::int64_t step);
  // Kept states, ascending; state 0 is always there.
  std::vector<std::int64_t> kept() const;

 private:
  struct Slot {
    std::int64_t step;
    std::int32_t level;
  };
  // The block of Algorithm I that holds a step: where it begins and how many states it keeps.
  struct Block {
    std::int64_t begin, keeps;
  };
  Block block_of(std::int64_t step) const;
  std::int64_t block_end() const { return (slots_ + 1) * (slots_ + 2) / 2; }

  std::int64_t slots_;
  std::vector<Slot> kept_;
};

}  // namespace ebb
