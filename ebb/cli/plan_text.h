// SPDX-License-Identifier: Apache-2.0
// The answers of `ebb plan` as people read them. The same answers as JSON are in plan/text.h.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>

#include "ebb/core/bytes.h"
#include "ebb/plan/chain.h"
#include "ebb/plan/plan.h"
#include "ebb/plan/strategies.h"

namespace ebb {

struct PlanAnswer {
  const Chain& chain;
  const PlanOptions& options;
  const Plan& plan;
  double plan_seconds;
  std::optional<Bytes> least_budget;
};

// Does it fit, how slow is it, how far from the bound, who holds what.
void write_summary(const PlanAnswer& answer, std::ostream& out);

// One line per budget: time, gap, forwards per step.
void write_sweep(const Chain& chain, const PlanOptions& options, std::span<const SweepPoint> points,
                 std::ostream& out);

// The table of strategies.
void write_strategies(std::span<const StrategyRow> rows, std::ostream& out);

}  // namespace ebb
