// SPDX-License-Identifier: Apache-2.0
// A Step whose writes are checked: each step is called by itself, with memory of exactly the sizes
// that it said, between guard bytes. What it writes beyond is an error that names the step and the
// item, not a change of whatever lies beside it.
#pragma once

#include "ebb/device/buffer.h"
#include "ebb/run/step.h"

namespace ebb {

class CheckedStep : public Step {
 public:
  // `inner` must outlive it. Throws Error(invalid_argument) if it says that its steps are alike and
  // any of them differs.
  explicit CheckedStep(Step& inner);

  std::int64_t steps() const override { return inner_.steps(); }
  StepBytes bytes(std::int64_t step) const override { return inner_.bytes(step); }
  bool is_uniform() const override { return inner_.is_uniform(); }
  Bytes final_bytes() const override { return inner_.final_bytes(); }
  void begin() override { inner_.begin(); }
  bool ended(std::int64_t step, const std::byte* state) override {
    return inner_.ended(step, state);
  }
  // These throw Error(invalid_argument) for a write beyond an item.
  std::int64_t advance(const StepSpan& span, std::byte* state, std::byte* scratch) override;
  void record(const StepSpan& span, std::byte* state, const Tapes& tapes,
              std::byte* scratch) override;
  void reverse(std::int64_t from, std::int64_t to, const Tapes& tapes, std::byte* adjoint,
               std::byte* scratch) override;
  Bytes state_in_tape(std::int64_t step) const override { return inner_.state_in_tape(step); }
  std::vector<FieldShape> state_fields() const override { return inner_.state_fields(); }
  std::vector<FieldShape> tape_fields() const override { return inner_.tape_fields(); }
  std::vector<Field> parameters() override { return inner_.parameters(); }
  std::vector<Field> gradients() override { return inner_.gradients(); }
  double loss() const override { return inner_.loss(); }
  Bytes callers_bytes() const override { return inner_.callers_bytes(); }

 private:
  // One item of one call, with guard bytes before and behind it.
  class Guarded {
   public:
    explicit Guarded(const char* name) : name_(name) {}
    // Memory of that size, its first bytes those at `from`.
    std::byte* take(Bytes bytes, const std::byte* from, Bytes copied);
    void check(const char* call, std::int64_t step) const;

   private:
    const char* name_;
    Buffer memory_;
    Bytes bytes_ = 0;
  };
  Bytes largest_state(std::int64_t step) const;
  std::byte* take_scratch(Bytes bytes);

  Step& inner_;
  Guarded state_{"state"}, tape_{"tape"}, adjoint_{"adjoint"}, scratch_{"scratch"};
};

}  // namespace ebb
