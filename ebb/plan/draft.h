// SPDX-License-Identifier: Apache-2.0
// What the table of strategies asks of an algorithm, and what it gets back. Private to the room.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ebb/core/bytes.h"
#include "ebb/plan/chain.h"
#include "ebb/plan/descent.h"
#include "ebb/plan/machine.h"
#include "ebb/plan/plan.h"
#include "ebb/plan/strategies.h"

namespace ebb {

// One planning question. Algorithms for uniform chains plan uneven ones by `step`: largest bytes,
// mean seconds.
struct Problem {
  const Chain& chain;
  Machine machine;
  const PlanOptions& options;
  StepCost step;

  std::int64_t steps() const { return chain.steps(); }
  const std::vector<Tier>& tiers() const { return machine.platform.tiers; }
  // The working set, as if every step were `step`.
  Bytes working() const;
  // Bytes of fast beside the working set; negative when even that does not fit.
  Bytes room() const;
  // States that fit into `bytes`, at most the chain's steps; 0 when bytes is negative.
  std::int64_t states_in(Bytes bytes) const;
  // States tier k can hold, at most the chain's steps.
  std::int64_t states_in_tier(std::size_t k) const;
  // Seconds of copying `step`'s state within fast memory.
  double copy_seconds() const;
  // The same in forwards of `step`.
  double copy_forwards() const;
  // Steps alike, calls and copies within fast memory free, as the models of the published optima
  // have it.
  bool is_textbook() const {
    return chain.is_uniform() && chain.call() == 0 && std::isinf(machine.platform.copy_rate);
  }
  // The whole chain with the initial state where the accounting puts it: the caller's in fast, or
  // nowhere yet.
  Segment root() const;
};

// Chains up to this long are always judged by replay; a longer one by its forecast, if the draft
// has one.
inline constexpr std::int64_t kReplaySteps = 4'000'000;

// A plan before it is judged.
struct Draft {
  Plan::Start start;
  std::vector<std::pair<std::string, std::int64_t>> parameters;
  bool optimal = false;
  // No replay of this draft is faster.
  double at_least = 0;
  // Known without replay.
  std::optional<Prediction> forecast;
};

// A draft that walks `policy` down from `root`.
Draft descend(std::shared_ptr<const Policy> policy, const Segment& root, bool join_records = true);

// Seconds that every exact plan spends: each step is recorded and reversed once.
double unavoidable_seconds(const Chain& chain);

}  // namespace ebb
