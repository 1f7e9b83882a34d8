// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/strategies.h"

#include <algorithm>
#include <cmath>

#include "ebb/core/error.h"
#include "ebb/plan/bound.h"
#include "ebb/plan/fastest.h"
#include "ebb/plan/judged.h"
#include "ebb/plan/rows.h"

namespace ebb {
namespace {

std::string rows_without_length() {
  std::string names;
  for (const Row& row : strategy_rows()) {
    if (!row.traits.length_unknown) continue;
    names += (names.empty() ? "" : " and ") + std::string(row.row.name);
  }
  return names;
}

void check_options(const Row& row, const Chain& chain, const PlanOptions& o) {
  const auto name = row.row.name;
  if (o.slots && o.budget)
    fail(ErrorCode::invalid_argument, "slots and budget contradict each other; give one");
  if (o.slots && o.working) {
    fail(ErrorCode::invalid_argument,
         "working does not go with slots, which charge no working set; give budget");
  }
  if (o.budget && *o.budget < 0)
    fail(ErrorCode::invalid_argument, "budget is ", *o.budget, "; it must be 0 or more");
  if (o.working && *o.working < 0)
    fail(ErrorCode::invalid_argument, "working is ", *o.working, "; it must be 0 or more");
  if (o.slots && *o.slots < 0)
    fail(ErrorCode::invalid_argument, "slots is ", *o.slots, "; it must be 0 or more");
  if (o.slots && row.row.keeps_tapes) {
    fail(ErrorCode::invalid_argument, "slots count states, and ", name,
         " keeps tapes; give budget");
  }
  for (std::int64_t i = 1; o.slots && !chain.is_uniform() && i < chain.steps(); ++i) {
    if (chain.state(i) == chain.state(0)) continue;
    fail(ErrorCode::invalid_argument, "slots count equal states, and the state before step ", i,
         " has ", chain.state(i), " bytes, that before step 0 ", chain.state(0), "; give budget");
  }
  if (!o.intervals.empty() && row.traits.intervals == Traits::Intervals::none) {
    fail(ErrorCode::invalid_argument, "interval does not go with ", name);
  }
  for (std::size_t i = 0; i < o.intervals.size(); ++i) {
    if (o.intervals[i] >= 1 && (i == 0 || o.intervals[i] < o.intervals[i - 1])) continue;
    fail(ErrorCode::invalid_argument, "interval ", o.intervals[i],
         ": intervals must be 1 or more, each shorter than the one before");
  }
  if (o.intervals.size() > 1 && row.traits.intervals == Traits::Intervals::one) {
    fail(ErrorCode::invalid_argument, "interval: ", name, " takes one");
  }
  if (o.period && !row.traits.period)
    fail(ErrorCode::invalid_argument, "period goes with periodic_disk alone");
  if (o.period && *o.period < 1)
    fail(ErrorCode::invalid_argument, "period is ", *o.period, "; it must be 1 or more");
  if (o.length_unknown && !row.traits.length_unknown) {
    fail(ErrorCode::invalid_argument, "an unknown length goes with ", rows_without_length(),
         ", not with ", name);
  }
}

void check_served(const Row& row, const Problem& p) {
  if (can_serve(row, p)) return;
  throw Error(
      ErrorCode::invalid_argument,
      "strategy " + std::string(row.row.name) + " needs a slow tier and the platform has none", {},
      "add one or take another strategy");
}

Bytes least_of(const Row& row, const Chain& chain, const Platform& platform, const PlanOptions& o) {
  if (!row.is_auto()) {
    const Problem p = problem_for(row, chain, platform, o);
    return can_serve(row, p) ? row.least(p) : kUnlimited;
  }
  Bytes least = kUnlimited;
  for (const Row& other : strategy_rows()) {
    if (other.is_auto() || other.is_covered(platform.tiers.size())) continue;
    least = std::min(least, least_of(other, chain, platform, o));
  }
  return least;
}

Plan plan_with(const Row& row, const Chain& chain, const Platform& platform, const PlanOptions& o) {
  const Problem p = problem_for(row, chain, platform, o);
  check_served(row, p);
  const Bytes least = row.least(p);
  if (least > p.machine.platform.fast || least == kUnlimited) refuse(row, p, least);
  Plan plan = judged(row, p, row.draft(p));
  plan.bound = without_rounding(bound(chain, p.machine), plan.prediction.seconds);
  return plan;
}

}  // namespace

Plan make_plan(const Chain& chain, const Platform& platform, const PlanOptions& options) {
  const Row& row = row_named(options.strategy);
  check_platform(platform);
  check_options(row, chain, options);
  return row.is_auto() ? fastest_plan(row, chain, platform, options)
                       : plan_with(row, chain, platform, options);
}

std::optional<Bytes> least_budget(const Chain& chain, const Platform& platform,
                                  const PlanOptions& options) {
  const Row& row = row_named(options.strategy);
  check_platform(platform);
  check_options(row, chain, options);
  const Bytes least = least_of(row, chain, platform, options);
  return least == kUnlimited ? std::nullopt : std::optional(least);
}

std::int64_t largest_steps(const StepCost& step, double call, const Platform& platform,
                           const PlanOptions& options) {
  const Row& row = row_named(options.strategy);
  check_platform(platform);
  const Chain none = Chain::uniform(0, step, call);
  check_options(row, none, options);
  check_served(row, problem_for(row, none, platform, options));
  const auto fits = [&](std::int64_t steps) {
    const Chain chain = Chain::uniform(steps, step, call);
    const Bytes fast = problem_for(row, chain, platform, options).machine.platform.fast;
    const Bytes least = least_of(row, chain, platform, options);
    return least <= fast && least != kUnlimited;
  };
  constexpr std::int64_t most = 1'000'000'000;
  if (fits(most)) return kUnlimited;
  std::int64_t low = 0;
  std::int64_t high = 1;
  while (fits(high)) {
    low = high;
    high *= 2;
  }
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  // Searched intervals may suit a chain a little longer than one they do not suit.
  constexpr std::int64_t beyond = 16;
  const std::int64_t last = low + beyond;
  for (std::int64_t steps = low + 1; steps <= last; ++steps) {
    if (fits(steps)) low = steps;
  }
  return low;
}

std::vector<SweepPoint> sweep(const Chain& chain, const Platform& platform,
                              const PlanOptions& options, int points) {
  std::vector<SweepPoint> out;
  const Row& row = row_named(options.strategy);
  check_platform(platform);
  check_options(row, chain, options);
  check_served(row, problem_for(row, chain, platform, options));
  const std::optional<Bytes> least = least_budget(chain, platform, options);
  if (!least) return out;
  PlanOptions at = options;
  const StepCost step = chain.typical();
  const Bytes unit = options.slots ? step.state : 1;
  Bytes most = scale_bytes(step.state, chain.steps());
  if (!options.slots) {
    PlanOptions all = options;
    all.strategy = "store_all";
    all.intervals.clear();
    all.period.reset();
    all.length_unknown = false;
    most = least_of(row_named("store_all"), chain, platform, all);
  }
  most = std::max(most, *least);
  const double ratio =
      static_cast<double>(most) / static_cast<double>(std::max<Bytes>(*least, unit));
  for (int i = 0; i < points; ++i) {
    const double share = points == 1 ? 0 : static_cast<double>(i) / (points - 1);
    const double wish = static_cast<double>(std::max<Bytes>(*least, unit)) * std::pow(ratio, share);
    const Bytes budget =
        i == 0 ? *least
               : std::min(most, static_cast<Bytes>(wish / static_cast<double>(unit)) * unit);
    if (!out.empty() && budget <= out.back().budget) continue;
    if (options.slots) {
      at.slots = budget / unit;
    } else {
      at.budget = budget;
    }
    out.push_back({budget, make_plan(chain, platform, at)});
  }
  return out;
}

}  // namespace ebb
