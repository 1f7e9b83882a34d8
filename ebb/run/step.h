// SPDX-License-Identifier: Apache-2.0
// A step: what a run needs of a computation over time. Native cells, a time step of a simulation
// and a user's own functions are all Steps; which steps run when, and where states and tapes lie,
// is the run's business.
//
// A Step's arithmetic must not depend on the range it is called in: then every plan gives the same
// bits. Steps are called from one thread, never two at a time. What they throw ends the run and
// reaches the caller unchanged.
//
// A run that has to measure calls begin, advance, record and reverse when it is made, before forward,
// with span.first false; with RunOptions::chain it asks for sizes alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ebb/codec/fields.h"
#include "ebb/core/bytes.h"

namespace ebb {

// The sizes of one step; see StepCost.
struct StepBytes {
  Bytes state = 0;  // before the step
  Bytes tape = 0;   // all that reversing it needs, the state after it included
  // Room for the gradient of the state before and of the state after it, one at a time: no less than the
  // larger of both. What else reverse hands on from one step to the one before may lie there too.
  Bytes adjoint = 0;
  Bytes scratch = 0;  // memory that a call may use as it likes
  friend bool operator==(const StepBytes&, const StepBytes&) = default;
};

// Tapes of neighbouring steps: of the first at `data`, of each next one `stride` bytes on.
struct Tapes {
  std::byte* data = nullptr;
  Bytes stride = 0;
  std::byte* at(std::int64_t i) const { return data + i * stride; }
};

// Steps [from,to) to be run.
struct StepSpan {
  std::int64_t from = 0, to = 0;
  // These run for the first time: outputs and losses belong to the caller now. Later runs of the
  // same steps must not hand them out again.
  bool first = false;
};

// Parameters or their gradient, where the Step keeps them.
struct Field {
  std::string name;
  Element element = Element::f32;
  std::span<std::byte> bytes;
};

// A computation over time, step by step: forward with and without a tape, and backward. Derive from it, or use FunctionStep.
class Step {
 public:
  Step() = default;
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  virtual ~Step() = default;

  static constexpr std::int64_t kUnknown = -1;
  // How many there are, or kUnknown: then advance finds the end.
  virtual std::int64_t steps() const = 0;
  // 0 <= step < steps(). States and tapes of 1 byte or more.
  virtual StepBytes bytes(std::int64_t step) const = 0;
  // true: bytes(step) is the same for all.
  virtual bool is_uniform() const { return true; }
  // Bytes of the state after the last step; for uniform steps no more than of any other.
  virtual Bytes final_bytes() const { return bytes(0).state; }

  // A run begins: results and gradients of an earlier one are forgotten.
  virtual void begin() {}
  // Runs the steps: `state` is the state before span.from and becomes the one before span.to; its
  // memory is large enough for every state on the way. Returns span.to, or, where the length is
  // unknown and the sequence ended earlier, the step before which it did.
  virtual std::int64_t advance(const StepSpan& span, std::byte* state, std::byte* scratch) = 0;
  // Where the length is unknown: whether the sequence ends before `step`, in that state. Asked
  // before the first step and after each advance.
  virtual bool ended(std::int64_t step, const std::byte* state) {
    static_cast<void>(step);
    static_cast<void>(state);
    return false;
  }
  // Runs the steps like advance, leaving their tapes. The length is known by then.
  virtual void record(const StepSpan& span, std::byte* state, const Tapes& tapes,
                      std::byte* scratch) = 0;
  // Reverses the steps, last first: `adjoint` belongs to the state before `to` and becomes the one
  // before `from`. Gradients of parameters and inputs are added up in the Step, in that order.
  virtual void reverse(std::int64_t from, std::int64_t to, const Tapes& tapes, std::byte* adjoint,
                       std::byte* scratch) = 0;
  // Where in the tape of `step` the state after it lies, in one piece; by default at the end.
  virtual Bytes state_in_tape(std::int64_t step) const { return bytes(step).tape - after(step); }
  // Bytes of the state after `step`.
  Bytes after(std::int64_t step) const {
    return step + 1 == steps() ? final_bytes() : bytes(is_uniform() ? 0 : step + 1).state;
  }

  // Not needed to run, but by codecs: the parts of every state and of every tape. gradient_check
  // needs those of the states too, without a gap.
  virtual std::vector<FieldShape> state_fields() const { return {}; }
  virtual std::vector<FieldShape> tape_fields() const { return {}; }
  // By gradient_check and verify. The loss is what the steps themselves added up while they first
  // ran, beside what the caller makes of the final state.
  virtual std::vector<Field> parameters() { return {}; }
  virtual std::vector<Field> gradients() { return {}; }
  virtual double loss() const { return 0; }
  // By reports: inputs, outputs, parameters and gradients that the caller holds for this Step.
  virtual Bytes callers_bytes() const { return 0; }
};

}  // namespace ebb
