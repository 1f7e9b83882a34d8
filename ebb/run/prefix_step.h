// SPDX-License-Identifier: Apache-2.0
// The first steps of a Step, as a Step, for comparisons: outputs are handed out to nobody.
#pragma once

#include "ebb/run/step.h"

namespace ebb {

class PrefixStep : public Step {
 public:
  // 0 <= steps <= inner.steps(). `inner` must outlive it.
  PrefixStep(Step& inner, std::int64_t steps) : inner_(inner), steps_(steps) {}

  std::int64_t steps() const override { return steps_; }
  StepBytes bytes(std::int64_t step) const override { return inner_.bytes(step); }
  bool is_uniform() const override { return inner_.is_uniform(); }
  Bytes final_bytes() const override {
    return steps_ == inner_.steps() ? inner_.final_bytes()
                                    : inner_.bytes(is_uniform() ? 0 : steps_).state;
  }
  void begin() override { inner_.begin(); }
  std::int64_t advance(const StepSpan& span, std::byte* state, std::byte* scratch) override {
    return inner_.advance({span.from, span.to, false}, state, scratch);
  }
  void record(const StepSpan& span, std::byte* state, const Tapes& tapes,
              std::byte* scratch) override {
    inner_.record({span.from, span.to, false}, state, tapes, scratch);
  }
  void reverse(std::int64_t from, std::int64_t to, const Tapes& tapes, std::byte* adjoint,
               std::byte* scratch) override {
    inner_.reverse(from, to, tapes, adjoint, scratch);
  }
  Bytes state_in_tape(std::int64_t step) const override { return inner_.state_in_tape(step); }
  std::vector<FieldShape> state_fields() const override { return inner_.state_fields(); }
  std::vector<FieldShape> tape_fields() const override { return inner_.tape_fields(); }
  std::vector<Field> parameters() override { return inner_.parameters(); }
  std::vector<Field> gradients() override { return inner_.gradients(); }
  double loss() const override { return inner_.loss(); }

 private:
  Step& inner_;
  std::int64_t steps_;
};

}  // namespace ebb
