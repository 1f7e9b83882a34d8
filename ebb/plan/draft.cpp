// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/draft.h"

#include <algorithm>

namespace ebb {

Bytes Problem::working() const {
  if (machine.working) return *machine.working;
  if (steps() == 0) return 0;
  return add_bytes(add_bytes(step.live_bytes(), step.adjoint), add_bytes(step.scratch, step.tape));
}

Bytes Problem::room() const {
  return machine.platform.fast == kUnlimited ? kUnlimited : machine.platform.fast - working();
}

std::int64_t Problem::states_in(Bytes bytes) const {
  return bytes < 0 ? 0 : std::min(bytes / step.state, steps());
}

std::int64_t Problem::states_in_tier(std::size_t k) const { return states_in(tiers()[k].capacity); }

double Problem::copy_seconds() const {
  return static_cast<double>(step.state) / machine.platform.copy_rate;
}

double Problem::copy_forwards() const {
  // Where forwards cost next to nothing, copies are all that counts.
  constexpr double most = 1e6;
  const double copy = copy_seconds();
  return copy < most * step.forward ? copy / step.forward : (copy > 0 ? most : 0);
}

Segment Problem::root() const {
  Segment root{0, steps()};
  root.start = machine.start_charged ? Place::work : Place::fast;
  return root;
}

Draft descend(std::shared_ptr<const Policy> policy, const Segment& root, bool join_records) {
  Draft draft;
  draft.start = [policy = std::move(policy), root, join_records] {
    return std::make_unique<Descent>(policy, root, join_records);
  };
  return draft;
}

double unavoidable_seconds(const Chain& chain) {
  return chain.record_seconds(0, chain.steps()) + chain.backward_seconds(0, chain.steps());
}

}  // namespace ebb
