// SPDX-License-Identifier: Apache-2.0
// Uniform mix: a state or a tape per place, for uniform steps.
//
// Gruslys et al. 2016 (BPTT-MSM).
// Model of msm: m units of extra memory, a state takes `state` of them, a tape `tape`; the
// segment's start and the tape in use are free; a tape restarts the step after it.
//   C(t,m) = min( t + C(t-1,m),
//                 min_y y + C(t-y,m-state) + C(y,m),         keep state y
//                 min_y y + C(t-y,m-tape)  + C(y-1,m) )      keep tape y
// forwards in all. The recurrence is optimal in its class; a state that is dropped at its last load
// could make room for a tape, which the class does not know (docs/planning.md has the example):
// `chain` does. Departs from the papers: sizes are bytes; long chains use the capacities instead of
// the table: A_j(m), the longest chain whose steps all run at most j times,
//   A_j(m) = A_{j-1}(m) + max(1, A_j(m-state), 1 + A_j(m-tape))
// and split where the capacities say. That is exact for msm when state and tape have one size, and
// near the table elsewhere (docs/planning.md has figures).
#pragma once

#include "ebb/plan/draft.h"

namespace ebb {

Draft draft_store_all(const Problem& problem);
Draft draft_msm(const Problem& problem);
Bytes least_store_all(const Problem& problem);

// The msm policy for any segment of up to `steps` uniform steps in up to `room` bytes.
// Segment::room counts units.
class UniformMixPolicy : public Policy {
 public:
  virtual std::int64_t units_in(Bytes room) const = 0;
  // Forwards for that many steps: exact from the table, from the capacities a lower bound. Where copies
  // count, those of a good plan with its copies, in forwards.
  virtual std::int64_t forwards(std::int64_t steps, std::int64_t units) const = 0;
};

// release: drop starts at their last load too. table_entries: lengths times units up to which the
// exact table is used; beyond it the capacities are. copy: what copying a state within fast memory
// takes, in forwards; the capacities leave it out.
std::shared_ptr<const UniformMixPolicy> uniform_mix_policy(std::int64_t steps, Bytes state,
                                                           Bytes tape, Bytes room, bool release,
                                                           double table_entries, double copy = 0);

// msm, or with release the plan that `chain` makes of long uniform chains, which counts copies.
Draft draft_uniform_mix(const Problem& problem, bool release);

}  // namespace ebb
