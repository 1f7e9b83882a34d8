// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <utility>

#include "ebb/core/error.h"
#include "ebb/plan/strategies.h"

namespace ebb {

std::optional<SweepPoint> least_within(const Chain& chain, const Platform& platform,
                                       const PlanOptions& options, double seconds) {
  if (options.slots) {
    fail(ErrorCode::invalid_argument, "slots: a budget in bytes is sought; leave them out");
  }
  PlanOptions how = options;
  // Nothing where it takes longer; plans that are too long to be predicted do.
  const auto plan_in = [&](Bytes budget) -> std::optional<SweepPoint> {
    how.budget = budget;
    try {
      SweepPoint point{budget, make_plan(chain, platform, how)};
      if (point.plan.prediction.seconds <= seconds) return point;
    } catch (const Error& error) {
      const ErrorCode code = error.code();
      if (code != ErrorCode::unavailable && code != ErrorCode::infeasible_budget) throw;
    }
    return {};
  };
  // What a plan leaves unused is not needed.
  const auto tightened = [&](SweepPoint point) {
    const Bytes peak = point.plan.prediction.peak.front();
    if (peak >= point.budget) return point;
    return plan_in(peak).value_or(std::move(point));
  };
  const std::optional<Bytes> least = least_budget(chain, platform, options);
  std::optional<SweepPoint> best = plan_in(kUnlimited);
  if (!least || !best) return {};
  if (std::optional<SweepPoint> point = plan_in(*least)) return point;
  best = tightened(std::move(*best));
  constexpr double close_enough = 1.001;
  auto low = static_cast<double>(*least);
  while (static_cast<double>(best->budget) > std::max(low * close_enough, low + 1)) {
    const auto middle = static_cast<Bytes>(std::sqrt(low * static_cast<double>(best->budget)));
    if (std::optional<SweepPoint> point = plan_in(middle)) {
      best = tightened(std::move(*point));
    } else {
      low = static_cast<double>(middle) + 1;
    }
  }
  return best;
}

}  // namespace ebb
