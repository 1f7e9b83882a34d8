// SPDX-License-Identifier: Apache-2.0
#include "ebb/run/coded_step.h"

#include "ebb/core/error.h"
#include "ebb/run/sizes.h"

namespace ebb {

CodedStep::CodedStep(Step& inner, std::string_view words) : WrappedStep(inner) {
  if (!inner.is_uniform() || inner.steps() == 0) {
    fail(ErrorCode::invalid_argument, "run: tape codec '", words,
         "': it takes a Step of 1 step or more, all alike");
  }
  raw_ = inner.bytes(0);
  tape_room_ = rounded(raw_.tape, kAlignment);
  std::vector<FieldShape> fields = inner.tape_fields();
  if (fields.empty()) {
    fail(ErrorCode::invalid_argument, "run: tape codec '", words,
         "': the Step says nothing of its tape's fields; give it tape_fields()");
  }
  codec_ = std::make_unique<FieldCodec>(words, std::move(fields), raw_.tape, inner.state_in_tape(0),
                                        inner.after(0));
}

StepBytes CodedStep::bytes(std::int64_t) const {
  StepBytes bytes = raw_;
  bytes.tape = codec_->encoded_bytes();
  bytes.scratch += tape_room_;
  return bytes;
}

void CodedStep::record(const StepSpan& span, std::byte* state, const Tapes& tapes,
                       std::byte* scratch) {
  const auto raw = static_cast<std::size_t>(raw_.tape);
  const auto encoded = static_cast<std::size_t>(codec_->encoded_bytes());
  for (std::int64_t step = span.from; step < span.to; ++step) {
    inner().record({step, step + 1, span.first}, state, {scratch, raw_.tape}, scratch + tape_room_);
    codec_->encode({scratch, raw}, {tapes.at(step - span.from), encoded});
  }
}

void CodedStep::reverse(std::int64_t from, std::int64_t to, const Tapes& tapes, std::byte* adjoint,
                        std::byte* scratch) {
  const auto raw = static_cast<std::size_t>(raw_.tape);
  const auto encoded = static_cast<std::size_t>(codec_->encoded_bytes());
  for (std::int64_t step = to - 1; step >= from; --step) {
    codec_->decode({tapes.at(step - from), encoded}, {scratch, raw});
    inner().reverse(step, step + 1, {scratch, raw_.tape}, adjoint, scratch + tape_room_);
  }
}

}  // namespace ebb
