// SPDX-License-Identifier: Apache-2.0
// A chain: the steps of one computation with their costs and sizes. Plain numbers; where they come
// from does not matter here.
#pragma once

#include <cstdint>
#include <vector>

#include "ebb/core/bytes.h"

namespace ebb {

// One step. Seconds are per step, beside the chain's seconds per call.
struct StepCost {
  double forward = 1;   // run the step, keep nothing
  double record = 1;    // run the step, leave its tape
  double backward = 2;  // reverse the step from its tape
  Bytes state = 1;      // what restarts the computation before this step
  Bytes tape = 1;       // what reversing the step needs, the states before and after it included
  Bytes adjoint = 1;    // the gradient held while this step is next to be reversed
  Bytes scratch = 0;    // held while the step runs or is reversed
  // The state while it is live, where that is more: a codec keeps states in fewer bytes.
  Bytes live = 0;
  Bytes live_bytes() const { return live > state ? live : state; }
  friend bool operator==(const StepCost&, const StepCost&) = default;
};

// N steps, alike (`uniform`, O(1) memory for any N) or each with its own costs (`of`). Immutable.
// Both throw Error(invalid_argument) for negative or non-finite costs, sizes below 0 or states and
// tapes of 0 bytes, and sums beyond 2^62.
class Chain {
 public:
  static Chain uniform(std::int64_t steps, const StepCost& step, double call = 0);
  static Chain of(std::vector<StepCost> steps, double call = 0);

  std::int64_t steps() const { return steps_; }
  bool is_uniform() const { return each_.empty(); }
  // Seconds added to every Advance, Record and Reverse, however many steps it covers.
  double call() const { return call_; }
  // 0 <= i < steps(); for a uniform chain any i.
  const StepCost& at(std::int64_t i) const {
    return each_.empty() ? step_ : each_[static_cast<std::size_t>(i)];
  }
  // Bytes of the state before step i; 0 for i == steps(), since the final state is the caller's
  // output.
  Bytes state(std::int64_t i) const { return i >= steps_ ? 0 : at(i).state; }
  // The same while it is live.
  Bytes live(std::int64_t i) const { return i >= steps_ ? 0 : at(i).live_bytes(); }

  // Sums over the steps [a,b), without the seconds per call. O(1).
  double forward_seconds(std::int64_t a, std::int64_t b) const;
  double record_seconds(std::int64_t a, std::int64_t b) const;
  double backward_seconds(std::int64_t a, std::int64_t b) const;
  Bytes tape_bytes(std::int64_t a, std::int64_t b) const;

  // Field by field: the largest bytes and the mean seconds. The step itself for a uniform chain.
  StepCost typical() const;

 private:
  Chain() = default;

  std::int64_t steps_ = 0;
  double call_ = 0;
  StepCost step_;
  std::vector<StepCost> each_;
  struct Sums {
    double forward, record, backward;
    Bytes tape;
  };
  std::vector<Sums> sums_;  // sums_[i]: over the first i steps
};

}  // namespace ebb
