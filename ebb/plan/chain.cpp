// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/chain.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "ebb/core/error.h"

namespace ebb {
namespace {

constexpr Bytes kLargest = Bytes{1} << 62;

void check_seconds(const char* name, double value, const std::string& where) {
  if (!std::isfinite(value) || value < 0 || value > 1e15) {
    fail(ErrorCode::invalid_argument, "chain: ", name, where, " is ", value,
         " seconds; it must be a number from 0 to 1e15");
  }
}

void check_bytes(const char* name, Bytes value, Bytes least, const std::string& where) {
  if (value < least || value > kLargest) {
    fail(ErrorCode::invalid_argument, "chain: ", name, where, " is ", value,
         " bytes; it must be from ", least, " to 2^62");
  }
}

void check_step(const StepCost& step, const std::string& where) {
  check_seconds("forward", step.forward, where);
  check_seconds("record", step.record, where);
  check_seconds("backward", step.backward, where);
  check_bytes("state", step.state, 1, where);
  check_bytes("tape", step.tape, 1, where);
  check_bytes("adjoint", step.adjoint, 0, where);
  check_bytes("scratch", step.scratch, 0, where);
  check_bytes("live", step.live, 0, where);
}

}  // namespace

Chain Chain::uniform(std::int64_t steps, const StepCost& step, double call) {
  if (steps < 0 || steps > 1'000'000'000'000) {
    fail(ErrorCode::invalid_argument, "chain: ", steps, " steps; there may be 0 to 10^12");
  }
  check_step(step, "");
  check_seconds("call", call, "");
  Chain chain;
  chain.steps_ = steps;
  chain.call_ = call;
  chain.step_ = step;
  return chain;
}

Chain Chain::of(std::vector<StepCost> steps, double call) {
  if (std::adjacent_find(steps.begin(), steps.end(), std::not_equal_to<>{}) == steps.end()) {
    return uniform(static_cast<std::int64_t>(steps.size()),
                   steps.empty() ? StepCost{} : steps.front(), call);
  }
  check_seconds("call", call, "");
  Chain chain;
  chain.steps_ = static_cast<std::int64_t>(steps.size());
  chain.call_ = call;
  chain.sums_.reserve(steps.size() + 1);
  chain.sums_.push_back({0, 0, 0, 0});
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const StepCost& s = steps[i];
    check_step(s, " of step " + std::to_string(i));
    Sums sum = chain.sums_.back();
    sum.forward += s.forward;
    sum.record += s.record;
    sum.backward += s.backward;
    sum.tape = add_bytes(sum.tape, s.tape);
    check_bytes("the sum of all tapes", sum.tape, 0, "");
    chain.sums_.push_back(sum);
  }
  chain.each_ = std::move(steps);
  return chain;
}

double Chain::forward_seconds(std::int64_t a, std::int64_t b) const {
  if (each_.empty()) return static_cast<double>(b - a) * step_.forward;
  return sums_[static_cast<std::size_t>(b)].forward - sums_[static_cast<std::size_t>(a)].forward;
}

double Chain::record_seconds(std::int64_t a, std::int64_t b) const {
  if (each_.empty()) return static_cast<double>(b - a) * step_.record;
  return sums_[static_cast<std::size_t>(b)].record - sums_[static_cast<std::size_t>(a)].record;
}

double Chain::backward_seconds(std::int64_t a, std::int64_t b) const {
  if (each_.empty()) return static_cast<double>(b - a) * step_.backward;
  return sums_[static_cast<std::size_t>(b)].backward - sums_[static_cast<std::size_t>(a)].backward;
}

Bytes Chain::tape_bytes(std::int64_t a, std::int64_t b) const {
  if (each_.empty()) return scale_bytes(step_.tape, b - a);
  return sums_[static_cast<std::size_t>(b)].tape - sums_[static_cast<std::size_t>(a)].tape;
}

StepCost Chain::typical() const {
  if (each_.empty()) return step_;
  StepCost most{0, 0, 0, 0, 0, 0, 0, 0};
  for (const StepCost& s : each_) {
    most.state = std::max(most.state, s.state);
    most.tape = std::max(most.tape, s.tape);
    most.adjoint = std::max(most.adjoint, s.adjoint);
    most.scratch = std::max(most.scratch, s.scratch);
    most.live = std::max(most.live, s.live);
  }
  const auto n = static_cast<double>(steps_);
  most.forward = sums_.back().forward / n;
  most.record = sums_.back().record / n;
  most.backward = sums_.back().backward / n;
  return most;
}

}  // namespace ebb
