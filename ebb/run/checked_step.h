// SPDX-License-Identifier: Apache-2.0
// A Step whose writes are checked: each step is called by itself, with memory of exactly the sizes
// that it said, between guard bytes. What it writes beyond is an error that names the step and the
// item, not a change of whatever lies beside it.
#pragma once

#include "ebb/device/buffer.h"
#include "ebb/run/wrapped_step.h"

namespace ebb {

class CheckedStep : public WrappedStep {
 public:
  // `inner` must outlive it. Throws Error(invalid_argument) if it says that its steps are alike and
  // any of them differs.
  explicit CheckedStep(Step& inner);

  // These throw Error(invalid_argument) for a write beyond an item.
  std::int64_t advance(const StepSpan& span, std::byte* state, std::byte* scratch) override;
  void record(const StepSpan& span, std::byte* state, const Tapes& tapes,
              std::byte* scratch) override;
  void reverse(std::int64_t from, std::int64_t to, const Tapes& tapes, std::byte* adjoint,
               std::byte* scratch) override;

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

  Guarded state_{"state"}, tape_{"tape"}, adjoint_{"adjoint"}, scratch_{"scratch"};
};

}  // namespace ebb
