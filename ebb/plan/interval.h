// SPDX-License-Identifier: Apache-2.0
// Interval: nested intervals at chosen places.
//
// Chen et al. 2016 (sqrt); Bencheikh, Finkbeiner, Neftci 2024 (single, double: checkpoints at two
// levels over local and off-chip memory). Model: states are kept every K0 steps in one place,
// inside the active K0 chunk every K1 steps in the next, and so on; the innermost chunk is recorded
// whole (or reversed with binomial slots) and reversed. One more forward sweep a level. Departs
// from the papers: any number of levels in any places, any remainder; the last chunk of every level
// is gone through without a repeat; a chunk that is recorded whole does not keep its start;
// parameters are searched for the least time that fits instead of set by square roots. `double`
// reads the paper as two levels; its other reading (two places, one re-forward) is single_remote.
// The searched optimum is over these parameters, not over all plans.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ebb/plan/draft.h"

namespace ebb {

struct IntervalLevel {
  std::int64_t every;
  Place place;
  std::int64_t more = 0;  // steps that the last chunk may have beyond `every`
};

struct IntervalShape {
  std::vector<IntervalLevel> levels;  // outermost first; only that one may be in a slow tier
  // 0: the innermost chunk is recorded whole. s >= 1: it is reversed with s binomial slots in fast,
  // its start included.
  std::int64_t slots = 0;
};

class IntervalPolicy : public Policy {
 public:
  explicit IntervalPolicy(IntervalShape shape) : shape_(std::move(shape)) {}
  Choice choose(const Segment& segment) const override;

 private:
  IntervalShape shape_;
};

// What a shape costs on uniform steps, exactly.
struct IntervalCost {
  std::int64_t advances = 0;
  std::int64_t calls = 0;   // Advances, Records and Reverses
  std::int64_t copies = 0;  // within fast memory, but for saves inside binomial chunks
  Bytes fast = 0;           // beside the working set
  // States in the outermost level's tier, when that is slow.
  std::int64_t slow_held = 0, slow_writes = 0, slow_reads = 0;
};
IntervalCost interval_cost(const Problem& problem, const IntervalShape& shape);
// Seconds of the shape with every transfer waited for, which is what its plans do.
double interval_seconds(const Problem& problem, const IntervalShape& shape,
                        const IntervalCost& cost);
bool interval_fits(const Problem& problem, const IntervalShape& shape, const IntervalCost& cost);

Draft draft_shape(const Problem& problem, const IntervalShape& shape);

// Which shapes a strategy searches: that many levels, the outermost in fast or in one of the slow
// tiers, the others in fast.
struct IntervalFamily {
  bool local, remote;
  int fewest, most;  // levels
  bool binomial = false;
};
Draft draft_interval(const Problem& problem, const IntervalFamily& family);
Bytes least_interval(const Problem& problem, const IntervalFamily& family);

Draft draft_sqrt(const Problem& problem);
Bytes least_sqrt(const Problem& problem);

}  // namespace ebb
