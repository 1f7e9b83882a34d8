// SPDX-License-Identifier: Apache-2.0
// The table of strategies and the planner's five questions: which plan, what is the least budget,
// how long a chain fits, how does time fall with the budget, what is the least budget that is fast
// enough.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/core/bytes.h"
#include "ebb/plan/chain.h"
#include "ebb/plan/plan.h"
#include "ebb/plan/platform.h"

namespace ebb {

// How to plan: budget or slots, strategy and its parameters.
struct PlanOptions {
  std::string strategy = "auto";
  // Bytes in fast; platform.fast when neither this nor slots is given.
  std::optional<Bytes> budget = {};
  // The literature's accounting instead: fast holds this many states and nothing else is charged;
  // the initial state takes a slot of whichever tier the plan keeps it in. Refused for strategies
  // that keep tapes and for states of different sizes.
  std::optional<std::int64_t> slots = {};
  // Replaces the computed working set (not with slots).
  std::optional<Bytes> working = {};
  // Interval strategies, async and pofo: fixed instead of searched, outermost first.
  std::vector<std::int64_t> intervals = {};
  // periodic_disk: fixed instead of computed.
  std::optional<std::int64_t> period = {};
  bool sync = false;
  // Tapes cannot be copied, as those of a framework's own graphs.
  bool tapes_stay = false;
  // The cursor does not know the chain's length and waits for finish(n); chain.steps() is what the
  // prediction assumes. Only for async and online.
  bool length_unknown = false;
};

// A row of the table of strategies.
struct StrategyRow {
  std::string_view name;
  std::string_view algorithm;
  std::string_view summary;  // what it does, one phrase
  std::string_view paper;
  std::string_view optimal;  // in which model it is provably optimal; empty: it is not
  bool keeps_tapes;          // PlanOptions::slots is refused
  bool needs_tier;           // works only with a slow tier
};

std::span<const StrategyRow> strategies();
// nullptr where there is none of that name.
const StrategyRow* find_strategy(std::string_view name);

// The plan, its prediction and its bound. Throws Error(infeasible_budget) with the least budget
// when the strategy does not fit, Error(invalid_argument) for options that make no sense.
Plan make_plan(const Chain& chain, const Platform& platform, const PlanOptions& options);

// The smallest budget (bytes; slots * state with options.slots) for which make_plan succeeds,
// exact. options.budget and the value of options.slots are ignored. nullopt: no budget helps (a
// tier is missing or too small).
std::optional<Bytes> least_budget(const Chain& chain, const Platform& platform,
                                  const PlanOptions& options);

// The longest uniform chain of this step that the strategy can plan in the budget; kUnlimited when
// length does not matter.
std::int64_t largest_steps(const StepCost& step, double call, const Platform& platform,
                           const PlanOptions& options);

// A budget and the plan for it.
struct SweepPoint {
  Bytes budget;
  Plan plan;
};

// Plans at about `points` budgets from the least to the one that stores all, geometrically spaced.
// Never empty when least_budget has a value.
std::vector<SweepPoint> sweep(const Chain& chain, const Platform& platform,
                              const PlanOptions& options, int points = 12);

// The least budget, to a thousandth, whose plan takes no more than `seconds`; nothing where none
// does. By bisection: where more memory makes a strategy slower a smaller one may do, too.
// options.budget is ignored; throws Error(invalid_argument) for options.slots.
std::optional<SweepPoint> least_within(const Chain& chain, const Platform& platform,
                                       const PlanOptions& options, double seconds);

}  // namespace ebb
