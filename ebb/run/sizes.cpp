// SPDX-License-Identifier: Apache-2.0
#include "ebb/run/sizes.h"

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "ebb/core/error.h"

namespace ebb {
namespace {

std::string text_of(const StepBytes& bytes) {
  std::ostringstream text;
  text << "state " << bytes.state << ", tape " << bytes.tape << ", adjoint " << bytes.adjoint
       << ", scratch " << bytes.scratch;
  return text.str();
}

void check_bytes(const Step& step, std::int64_t index, const StepBytes& bytes) {
  if (bytes.state < 1 || bytes.tape < 1 || bytes.adjoint < 0 || bytes.scratch < 0) {
    fail(ErrorCode::invalid_argument, "run: step ", index, " says ", text_of(bytes),
         " bytes; states and tapes have 1 or more, the others 0 or more");
  }
  if (bytes.adjoint < std::max(bytes.state, step.after(index))) {
    fail(ErrorCode::invalid_argument, "run: step ", index, " says an adjoint of ", bytes.adjoint,
         " bytes; it must hold the gradient of the states before and after the step, ",
         std::max(bytes.state, step.after(index)));
  }
  if (const Bytes in_tape = step.state_in_tape(index);
      in_tape < 0 || in_tape > bytes.tape - step.after(index)) {
    fail(ErrorCode::invalid_argument, "run: the tape of step ", index, " has ", bytes.tape,
         " bytes, and the state after it, ", step.after(index), " bytes at ", in_tape,
         ", is not in it");
  }
}

}  // namespace

void check_alike(const Step& step, std::int64_t i) {
  const StepBytes first = step.bytes(0), other = step.bytes(i);
  if (first == other) return;
  fail(ErrorCode::invalid_argument,
       "run: the step says that all its steps are alike, but step 0 has ", text_of(first),
       " bytes and step ", i, " has ", text_of(other),
       "; let is_uniform() return false, or bytes() the same for all");
}

Chain chain_of(const Step& step, bool has_tiers, std::int64_t steps, const Chain* seconds) {
  if (steps == 0) return Chain::uniform(0, {});
  Bytes largest = 0;
  const std::int64_t looked_at = step.is_uniform() ? 1 : steps;
  for (std::int64_t i = 0; i < looked_at; ++i) {
    const StepBytes bytes = step.bytes(i);
    check_bytes(step, i, bytes);
    largest = std::max({largest, bytes.state, bytes.tape});
  }
  if (step.is_uniform() && step.steps() > 0) {
    for (const std::int64_t i : {step.steps() / 2, step.steps() - 1}) check_alike(step, i);
  }
  if (step.is_uniform() && step.final_bytes() > step.bytes(0).state) {
    fail(ErrorCode::invalid_argument, "run: the final state has ", step.final_bytes(),
         " bytes; where steps are alike it has at most ", step.bytes(0).state);
  }
  const Bytes grain = item_grain(largest, has_tiers);
  const auto cost_of = [&](std::int64_t i) {
    StepCost cost = seconds != nullptr ? seconds->at(i) : StepCost{};
    const StepBytes bytes = step.bytes(i);
    cost.state = rounded(bytes.state, grain);
    cost.tape = rounded(bytes.tape, grain);
    cost.adjoint = rounded(bytes.adjoint, grain);
    cost.scratch = rounded(bytes.scratch, grain);
    return cost;
  };
  const double call = seconds != nullptr ? seconds->call() : 0;
  if (step.is_uniform()) return Chain::uniform(steps, cost_of(0), call);
  std::vector<StepCost> costs;
  costs.reserve(static_cast<std::size_t>(steps));
  for (std::int64_t i = 0; i < steps; ++i) costs.push_back(cost_of(i));
  return Chain::of(std::move(costs), call);
}

Chain first_steps(const Chain& chain, std::int64_t steps) {
  if (chain.is_uniform()) return Chain::uniform(steps, chain.at(0), chain.call());
  std::vector<StepCost> costs;
  for (std::int64_t i = 0; i < std::min(steps, chain.steps()); ++i) costs.push_back(chain.at(i));
  return Chain::of(std::move(costs), chain.call());
}

}  // namespace ebb
