// SPDX-License-Identifier: Apache-2.0
#include "ebb/run/check_options.h"

#include "ebb/core/error.h"

namespace ebb {
namespace {

constexpr std::size_t kMostTraceEvents = 100'000'000;

// All that may be needed is taken beforehand.
void check_unknown(const RunOptions& options) {
  if (options.budget == kUnlimited) {
    fail(ErrorCode::invalid_argument,
         "run: a sequence of unknown length needs a budget: how many states are kept depends on "
         "nothing else");
  }
  for (const SlowTier& tier : options.tiers) {
    if (tier.capacity != kUnlimited) continue;
    fail(ErrorCode::invalid_argument, "run: tier '", tier.name,
         "' has no capacity; a sequence of unknown length needs one, since it is reserved first");
  }
}

}  // namespace

RunOptions checked(const Step& step, RunOptions options) {
  if (step.steps() < 0 && step.steps() != Step::kUnknown) {
    fail(ErrorCode::invalid_argument, "run: the step says ", step.steps(),
         " steps; there must be 0 or more, or Step::kUnknown");
  }
  if (options.budget < 0) {
    fail(ErrorCode::invalid_argument, "run: the budget is ", options.budget,
         " bytes; it must be 0 or more");
  }
  if (options.plan && !options.chain) {
    fail(ErrorCode::invalid_argument, "run: a plan needs the chain that it was made for");
  }
  if (!(options.progress_seconds >= 0)) {
    fail(ErrorCode::invalid_argument, "run: progress every ", options.progress_seconds,
         " seconds; it must be 0 or more");
  }
  if (options.replan_factor != 0 && !(options.replan_factor > 1)) {
    fail(ErrorCode::invalid_argument, "run: the factor to plan anew is ", options.replan_factor,
         "; it must be more than 1, or 0 for never");
  }
  if (step.steps() == Step::kUnknown && options.profile.expected_steps < 1) {
    fail(ErrorCode::invalid_argument, "run: ", options.profile.expected_steps,
         " steps are expected of a sequence of unknown length; say 1 or more");
  }
  if (options.trace_events > kMostTraceEvents) {
    fail(ErrorCode::invalid_argument, "run: a trace of ", options.trace_events,
         " events; there may be up to ", kMostTraceEvents);
  }
  for (const SlowTier& tier : options.tiers) {
    if (tier.capacity < 0) {
      fail(ErrorCode::invalid_argument, "run: tier '", tier.name, "' has a capacity of ",
           tier.capacity, " bytes; it must be 0 or more");
    }
    if (!tier.keeps && !options.timing_only) {
      fail(ErrorCode::invalid_argument, "run: tier '", tier.name,
           "' keeps nothing, so that gradients would be wrong; take one that does, or in C++ "
           "RunOptions::timing_only where only time and memory count");
    }
    if (!tier.open) fail(ErrorCode::invalid_argument, "run: tier '", tier.name, "' has no medium");
  }
  if (step.steps() == Step::kUnknown) check_unknown(options);
  return options;
}

}  // namespace ebb
