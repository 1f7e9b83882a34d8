// SPDX-License-Identifier: Apache-2.0
// The first steps of a Step, as a Step, for comparisons: outputs are not handed out.
#pragma once

#include "ebb/run/wrapped_step.h"

namespace ebb {

class PrefixStep : public WrappedStep {
 public:
  // 0 <= steps <= inner.steps(). `inner` must outlive it.
  PrefixStep(Step& inner, std::int64_t steps) : WrappedStep(inner), steps_(steps) {}

  std::int64_t steps() const override { return steps_; }
  Bytes final_bytes() const override {
    return steps_ == inner().steps() ? inner().final_bytes()
                                     : inner().bytes(is_uniform() ? 0 : steps_).state;
  }
  std::int64_t advance(const StepSpan& span, std::byte* state, std::byte* scratch) override {
    return inner().advance({span.from, span.to, false}, state, scratch);
  }
  void record(const StepSpan& span, std::byte* state, const Tapes& tapes,
              std::byte* scratch) override {
    inner().record({span.from, span.to, false}, state, tapes, scratch);
  }

 private:
  std::int64_t steps_;
};

}  // namespace ebb
