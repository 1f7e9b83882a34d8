// SPDX-License-Identifier: Apache-2.0
// Short words for asking for plans of uniform chains and for reading them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ebb/plan/strategies.h"

namespace ebb::test {

// The literature's accounting: so many states in fast, the initial one's slot included.
inline PlanOptions in_slots(std::string strategy, std::int64_t slots) {
  PlanOptions o;
  o.strategy = std::move(strategy);
  o.slots = slots;
  return o;
}

// Convention A of papers.md: so many bytes beside the free start and the free tape in use.
inline PlanOptions with_extra(std::string strategy, Bytes extra) {
  PlanOptions o;
  o.strategy = std::move(strategy);
  o.budget = extra;
  o.working = 0;
  return o;
}

inline Tier slow_tier(double write, double read, Bytes capacity = kUnlimited,
                      std::string name = "disk") {
  Tier tier;
  tier.name = std::move(name);
  tier.capacity = capacity;
  tier.write_latency = write;
  tier.read_latency = read;
  return tier;
}

inline Platform with_tiers(std::vector<Tier> tiers) {
  Platform platform;
  platform.tiers = std::move(tiers);
  return platform;
}

inline Plan plan_for(std::int64_t steps, const PlanOptions& options, const StepCost& step = {},
                     const Platform& platform = {}) {
  return make_plan(Chain::uniform(steps, step), platform, options);
}

inline std::int64_t forwards(std::int64_t steps, const PlanOptions& options,
                             const StepCost& step = {}) {
  return plan_for(steps, options, step).prediction.forwards;
}

inline std::vector<Action> actions_of(const Plan& plan) {
  std::vector<Action> actions;
  const auto cursor = plan.cursor();
  for (Action action; cursor->next(action);) actions.push_back(action);
  return actions;
}

// What a plan was given or found under this name; -1 where it has no such parameter.
inline std::int64_t parameter(const Plan& plan, const std::string& name) {
  for (const auto& [key, value] : plan.parameters) {
    if (key == name) return value;
  }
  return -1;
}

}  // namespace ebb::test
