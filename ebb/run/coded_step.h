// SPDX-License-Identifier: Apache-2.0
// A Step whose tapes are kept by a codec: each is recorded into scratch memory and encoded from
// there, and decoded before it is reversed. The state after the step is kept as it is.
#pragma once

#include <memory>
#include <string_view>

#include "ebb/codec/fields.h"
#include "ebb/run/step.h"

namespace ebb {

class CodedStep : public Step {
 public:
  // `inner` must outlive it. Throws Error(invalid_argument) for words that FieldCodec refuses, for
  // a Step without tape_fields and for steps that are not alike.
  CodedStep(Step& inner, std::string_view words);

  bool exact() const { return codec_->exact(); }

  std::int64_t steps() const override { return inner_.steps(); }
  StepBytes bytes(std::int64_t step) const override;
  Bytes final_bytes() const override { return inner_.final_bytes(); }
  void begin() override { inner_.begin(); }
  std::int64_t advance(const StepSpan& span, std::byte* state, std::byte* scratch) override {
    return inner_.advance(span, state, scratch);
  }
  bool ended(std::int64_t step, const std::byte* state) override {
    return inner_.ended(step, state);
  }
  void record(const StepSpan& span, std::byte* state, const Tapes& tapes,
              std::byte* scratch) override;
  void reverse(std::int64_t from, std::int64_t to, const Tapes& tapes, std::byte* adjoint,
               std::byte* scratch) override;
  Bytes state_in_tape(std::int64_t step) const override {
    return codec_->kept_at(inner_.state_in_tape(step));
  }
  std::vector<FieldShape> state_fields() const override { return inner_.state_fields(); }
  std::vector<Field> parameters() override { return inner_.parameters(); }
  std::vector<Field> gradients() override { return inner_.gradients(); }
  double loss() const override { return inner_.loss(); }
  Bytes callers_bytes() const override { return inner_.callers_bytes(); }

 private:
  Step& inner_;
  StepBytes raw_;
  Bytes tape_room_;  // in scratch, before the inner step's own
  std::unique_ptr<FieldCodec> codec_;
};

}  // namespace ebb
