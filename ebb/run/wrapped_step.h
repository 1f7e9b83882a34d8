// SPDX-License-Identifier: Apache-2.0
// A Step that is another one but for what is overridden.
#pragma once

#include <vector>

#include "ebb/run/step.h"

namespace ebb {

class WrappedStep : public Step {
 public:
  // `inner` must outlive it.
  explicit WrappedStep(Step& inner) : inner_(inner) {}

  std::int64_t steps() const override { return inner_.steps(); }
  StepBytes bytes(std::int64_t step) const override { return inner_.bytes(step); }
  bool is_uniform() const override { return inner_.is_uniform(); }
  Bytes final_bytes() const override { return inner_.final_bytes(); }
  void begin() override { inner_.begin(); }
  bool ended(std::int64_t step, const std::byte* state) override {
    return inner_.ended(step, state);
  }
  std::int64_t advance(const StepSpan& span, std::byte* state, std::byte* scratch) override {
    return inner_.advance(span, state, scratch);
  }
  void record(const StepSpan& span, std::byte* state, const Tapes& tapes,
              std::byte* scratch) override {
    inner_.record(span, state, tapes, scratch);
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
  Bytes callers_bytes() const override { return inner_.callers_bytes(); }

 protected:
  Step& inner() { return inner_; }
  const Step& inner() const { return inner_; }

 private:
  Step& inner_;
};

}  // namespace ebb
