// SPDX-License-Identifier: Apache-2.0
// Steps made of a user's own functions.
#pragma once

#include <cstring>
#include <functional>
#include <type_traits>
#include <utility>

#include "ebb/core/error.h"
#include "ebb/run/step.h"

namespace ebb {

// A time step in two functions over states of `size` numbers:
//   forward(i, before, after)            computes the state after step i
//   backward(i, before, after, adjoint)  turns the gradient with respect to `after` into the one
//                                        with respect to `before`, in place, and adds to the user's
//                                        own gradients of parameters and inputs
// The tape of a step is the states before and after it. forward may run any number of times for the
// same step and must give the same bits each time.
template <class Number>
class FunctionStep : public Step {
  static_assert(std::is_same_v<Number, float> || std::is_same_v<Number, double>);

 public:
  using In = std::span<const Number>;
  using Out = std::span<Number>;
  using Forward = std::function<void(std::int64_t, In, Out)>;
  using Backward = std::function<void(std::int64_t, In, In, Out)>;
  // For an unknown length: whether the sequence ends before step i, in that state.
  using Ended = std::function<bool(std::int64_t, In)>;

  // Throws Error(invalid_argument) for a negative length, a size of 0 and missing functions.
  FunctionStep(std::int64_t steps, std::size_t size, Forward forward, Backward backward)
      : FunctionStep(Made{}, steps, size, std::move(forward), std::move(backward)) {
    if (steps < 0) {
      fail(ErrorCode::invalid_argument, "FunctionStep: ", steps, " steps; there must be 0 or more");
    }
  }
  FunctionStep(std::size_t size, Forward forward, Backward backward, Ended ended)
      : FunctionStep(Made{}, kUnknown, size, std::move(forward), std::move(backward)) {
    ended_ = std::move(ended);
    if (!ended_) fail(ErrorCode::invalid_argument, "FunctionStep: nothing says where it ends");
  }

  // Called when a run begins, to forget gradients and results of the last one.
  void on_begin(std::function<void()> begin) { begin_ = std::move(begin); }
  // Called once for each step i when it first runs, with the state after it: for outputs and
  // losses.
  void on_first(std::function<void(std::int64_t, In)> first) { first_ = std::move(first); }
  // What `backward` adds to and with respect to what, for gradient_check and verify.
  void on_parameters(std::vector<Field> parameters, std::vector<Field> gradients) {
    parameters_ = std::move(parameters);
    gradients_ = std::move(gradients);
  }
  void on_loss(std::function<double()> loss) { loss_ = std::move(loss); }

  std::int64_t steps() const override { return steps_; }
  StepBytes bytes(std::int64_t) const override {
    const auto state = static_cast<Bytes>(state_bytes());
    return {.state = state, .tape = 2 * state, .adjoint = state, .scratch = state};
  }

  void begin() override {
    if (begin_) begin_();
  }

  std::int64_t advance(const StepSpan& span, std::byte* state, std::byte* scratch) override {
    std::byte* in = state;
    std::byte* out = scratch;
    std::int64_t i = span.from;
    while (i < span.to) {
      run(i++, in, out, span.first);
      std::swap(in, out);
      if (ended_ && span.first && ended_(i, numbers(in))) break;
    }
    if (in != state) std::memcpy(state, in, state_bytes());
    return i;
  }

  bool ended(std::int64_t step, const std::byte* state) override {
    return ended_ && ended_(step, {reinterpret_cast<const Number*>(state), size_});
  }

  void record(const StepSpan& span, std::byte* state, const Tapes& tapes, std::byte*) override {
    const std::byte* in = state;
    for (std::int64_t i = span.from; i < span.to; ++i) {
      std::byte* const tape = tapes.at(i - span.from);
      std::memcpy(tape, in, state_bytes());
      run(i, tape, tape + state_bytes(), span.first);
      in = tape + state_bytes();
    }
    std::memcpy(state, in, state_bytes());
  }

  void reverse(std::int64_t from, std::int64_t to, const Tapes& tapes, std::byte* adjoint,
               std::byte*) override {
    for (std::int64_t i = to - 1; i >= from; --i) {
      std::byte* const tape = tapes.at(i - from);
      backward_(i, numbers(tape), numbers(tape + state_bytes()), numbers(adjoint));
    }
  }

  std::vector<FieldShape> state_fields() const override {
    return {{"state", element(), 0, static_cast<Bytes>(state_bytes())}};
  }
  std::vector<FieldShape> tape_fields() const override {
    const auto state = static_cast<Bytes>(state_bytes());
    return {{"before", element(), 0, state}, {"after", element(), state, state}};
  }
  std::vector<Field> parameters() override { return parameters_; }
  std::vector<Field> gradients() override { return gradients_; }
  double loss() const override { return loss_ ? loss_() : 0; }
  Bytes callers_bytes() const override {
    Bytes bytes = 0;
    for (const auto* fields : {&parameters_, &gradients_}) {
      for (const Field& field : *fields) bytes += static_cast<Bytes>(field.bytes.size());
    }
    return bytes;
  }

 private:
  struct Made {};
  FunctionStep(Made, std::int64_t steps, std::size_t size, Forward forward, Backward backward)
      : steps_(steps), size_(size), forward_(std::move(forward)), backward_(std::move(backward)) {
    if (size == 0) fail(ErrorCode::invalid_argument, "FunctionStep: a state has 1 number or more");
    if (!forward_ || !backward_) {
      fail(ErrorCode::invalid_argument, "FunctionStep: forward and backward are both needed");
    }
  }

  static constexpr Element element() { return sizeof(Number) == 8 ? Element::f64 : Element::f32; }
  std::size_t state_bytes() const { return size_ * sizeof(Number); }
  Out numbers(std::byte* bytes) const { return {reinterpret_cast<Number*>(bytes), size_}; }
  void run(std::int64_t i, std::byte* in, std::byte* out, bool first) {
    forward_(i, numbers(in), numbers(out));
    if (first && first_) first_(i, numbers(out));
  }

  std::int64_t steps_;
  std::size_t size_;
  Forward forward_;
  Backward backward_;
  Ended ended_;
  std::function<void()> begin_;
  std::function<void(std::int64_t, In)> first_;
  std::function<double()> loss_;
  std::vector<Field> parameters_, gradients_;
};

}  // namespace ebb
