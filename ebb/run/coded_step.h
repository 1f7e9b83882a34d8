// SPDX-License-Identifier: Apache-2.0
// A Step whose tapes are kept by a codec: each is recorded into scratch memory and encoded from
// there, and decoded before it is reversed. The state after the step is kept as it is.
#pragma once

#include <memory>
#include <string_view>

#include "ebb/codec/fields.h"
#include "ebb/run/wrapped_step.h"

namespace ebb {

class CodedStep : public WrappedStep {
 public:
  // `inner` must outlive it. Throws Error(invalid_argument) for words that FieldCodec refuses, for
  // a Step without tape_fields and for steps that are not alike.
  CodedStep(Step& inner, std::string_view words);

  bool exact() const { return codec_->exact(); }

  StepBytes bytes(std::int64_t step) const override;
  void record(const StepSpan& span, std::byte* state, const Tapes& tapes,
              std::byte* scratch) override;
  void reverse(std::int64_t from, std::int64_t to, const Tapes& tapes, std::byte* adjoint,
               std::byte* scratch) override;
  Bytes state_in_tape(std::int64_t step) const override {
    return codec_->kept_at(inner().state_in_tape(step));
  }
  // What the codec made of them concerns no other room.
  std::vector<FieldShape> tape_fields() const override { return {}; }

 private:
  StepBytes raw_;
  Bytes tape_room_;  // in scratch, before the inner step's own
  std::unique_ptr<FieldCodec> codec_;
};

}  // namespace ebb
