// SPDX-License-Identifier: Apache-2.0
#include "ebb/experiments/async_bench.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <tuple>
#include <utility>

#include "ebb/core/error.h"
#include "ebb/experiments/as_prediction.h"
#include "ebb/experiments/stencil_step.h"
#include "ebb/run/profile.h"
#include "ebb/run/run.h"
#include "ebb/run/sizes.h"
#include "ebb/store/tier_kinds.h"

namespace ebb {
namespace {

constexpr std::int64_t kUsualSlots = 10;  // as in the tables of Kukreja et al.
constexpr double kNear = 0.1;
constexpr double kMostTierSeconds = 1;

class AsyncBench {
 public:
  explicit AsyncBench(const AsyncSetup& setup) : setup_(setup), tiers_(slow_tiers(setup.tiers)) {}

  AsyncResults run() {
    const std::vector<std::string> strategies = compared_strategies();
    all_ = setup_.steps.size() * strategies.size() + setup_.intervals.size() +
           setup_.vary_sweeps.size() * strategies.size();

    tell("measuring the tiers", 0);
    ProfileOptions options;
    // The usual transfer, not the quickest: a run makes many.
    options.tier_seconds = std::min(kMostTierSeconds, setup_.repeat * setup_.profile_seconds);
    const auto state = static_cast<Bytes>(4 * setup_.cells);
    for (const SlowTier& tier : tiers_) {
      check_stop();
      results_.platform.tiers.push_back(profile_tier(tier, state, options));
    }
    results_.chain = chain_of_sweeps(setup_.sweeps, most_steps());
    const StepCost& step = results_.chain.at(0);
    results_.budget = setup_.budget.value_or(step.live_bytes() + step.adjoint + step.scratch +
                                             step.tape + kUsualSlots * step.state);
    results_.platform.fast = results_.budget;
    options.room = results_.budget;
    results_.platform.copy_rate = profile_copies(state, options);

    for (const std::int64_t steps : setup_.steps) {
      for (const std::string& strategy : strategies)
        results_.by_steps.push_back(measure(strategy, steps, setup_.sweeps, {}));
    }
    check_any_fits();
    for (const std::int64_t interval : setup_.intervals) {
      results_.by_interval.push_back(measure("async", most_steps(), setup_.sweeps, interval));
    }
    for (const std::int64_t sweeps : setup_.vary_sweeps) {
      for (const std::string& strategy : strategies)
        results_.by_ratio.push_back(measure(strategy, most_steps(), sweeps, {}));
    }
    return std::move(results_);
  }

 private:
  std::int64_t most_steps() const { return setup_.steps.back(); }

  void check_stop() const {
    if (setup_.stop.stop_requested()) fail(ErrorCode::cancelled, "cancelled");
  }

  void check_any_fits() const {
    std::optional<Bytes> least;
    for (const AsyncPoint& point : results_.by_steps) {
      if (point.fits) return;
      if (point.least_budget) least = std::min(least.value_or(kUnlimited), *point.least_budget);
    }
    if (!least) fail(ErrorCode::infeasible_budget, "no strategy fits; give a larger tier");
    fail(ErrorCode::infeasible_budget, "no strategy fits in ", format_bytes(results_.budget),
         "; the least budget of any is ", format_bytes(*least),
         ": give a larger budget or a smaller state");
  }

  void tell(const std::string& what, double share) const {
    const double done = (static_cast<double>(done_) + share) / static_cast<double>(all_);
    if (setup_.progress) setup_.progress(what, done);
  }

  // The quickest of several measurements, as of several runs.
  Chain quickest_chain(Step& step, const ProfileOptions& options) const {
    const auto seconds = [](const Chain& chain) {
      return chain.at(0).forward + chain.at(0).record + chain.at(0).backward;
    };
    std::optional<Chain> best;
    for (int k = 0; k < setup_.repeat; ++k) {
      check_stop();
      Chain next = profile_step(step, !tiers_.empty(), options);
      if (!best || seconds(next) < seconds(*best)) best = std::move(next);
    }
    return *best;
  }

  Chain chain_of_sweeps(std::int64_t sweeps, std::int64_t steps) {
    auto known = costs_.find(sweeps);
    if (known == costs_.end()) {
      tell("measuring the step with " + std::to_string(sweeps) + " sweeps", 0);
      StencilStep step(most_steps(), setup_.cells, sweeps);
      const std::vector<float> initial = step.initial();
      ProfileOptions options;
      options.initial = std::as_bytes(std::span(initial));
      options.step_seconds = setup_.profile_seconds;
      known = costs_.emplace(sweeps, quickest_chain(step, options)).first;
    }
    const StencilStep step(steps, setup_.cells, sweeps);
    return chain_of(step, !tiers_.empty(), steps, &known->second);
  }

  AsyncPoint measure(const std::string& strategy, std::int64_t steps, std::int64_t sweeps,
                     std::optional<std::int64_t> interval) {
    check_stop();
    const Chain chain = chain_of_sweeps(sweeps, steps);
    AsyncPoint point;
    point.strategy = strategy;
    point.steps = steps;
    point.sweeps = sweeps;
    point.interval = interval;
    point.forward_seconds = chain.at(0).forward;
    point.transfer_seconds = results_.platform.tiers.front().write_seconds(chain.at(0).state);

    const std::string what = strategy + ", " + std::to_string(steps) + " steps of " +
                             std::to_string(sweeps) + " sweeps" +
                             (interval ? ", interval " + std::to_string(*interval) : "");
    tell(what, 0);
    StencilStep step(steps, setup_.cells, sweeps);
    RunOptions options;
    options.budget = results_.budget;
    options.tiers = tiers_;
    options.strategy = strategy;
    options.sync = in_turn(strategy);
    if (interval) options.intervals = {*interval};
    options.chain = chain;
    options.platform = results_.platform;
    options.stop = setup_.stop;
    options.replan_factor = 0;
    options.timing_only = true;
    if (setup_.progress) {
      options.progress = [this, &what](const Progress& now) {
        const auto all = static_cast<double>(now.all_forwards + now.steps);
        const double part = static_cast<double>(now.forwards + now.reversed) / all;
        tell(what, (repeated_ + part) / setup_.repeat);
      };
    }
    try {
      Run run(step, options);
      execute(run, step, point);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::cancelled) fail(ErrorCode::cancelled, "cancelled");
      if (error.code() != ErrorCode::infeasible_budget) throw;
      point.least_budget = error.least_budget();
    }
    ++done_;
    return point;
  }

  void execute(Run& run, const StencilStep& step, AsyncPoint& point) {
    const std::vector<float> initial = step.initial();
    const std::vector<float> adjoint = step.final_adjoint();
    std::vector<float> final(initial.size()), gradient(initial.size());
    point.fits = true;
    point.chosen = run.plan().strategy;
    point.parameters = run.plan().parameters;
    for (int k = 0; k < setup_.repeat; ++k) {
      repeated_ = k;
      run.forward(initial, final);
      run.backward(adjoint, gradient);
      const Report report = run.report();
      point.predicted = report.predicted;
      point.exact = report.exact;
      point.slowest = std::max(point.slowest, report.measured.seconds);
      if (k > 0 && report.measured.seconds >= point.measured.seconds) continue;
      point.measured = as_prediction(report.measured);
    }
    point.footprint = point.measured.peak[0];
    for (std::size_t k = 0; k < setup_.tiers.size(); ++k) {
      if (setup_.tiers[k].kind->is_memory) {
        point.footprint += point.measured.peak[k + 1];
      }
    }
    const auto known = gradients_.try_emplace({point.steps, point.sweeps}, gradient).first;
    point.same_gradient = known->second == gradient;
  }

  const AsyncSetup& setup_;
  const std::vector<SlowTier> tiers_;
  AsyncResults results_;
  std::size_t all_ = 1, done_ = 0;       // points
  int repeated_ = 0;                     // runs of this point
  std::map<std::int64_t, Chain> costs_;  // by sweeps
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<float>> gradients_;
};

}  // namespace

std::vector<std::string> compared_strategies() {
  return {"async", "revolve", "disk_revolve", "h_revolve", "store_all", "auto"};
}

bool in_turn(const std::string& strategy) {
  return strategy == "disk_revolve" || strategy == "h_revolve";
}

AsyncSummary summary_of(const AsyncResults& results) {
  AsyncSummary summary;
  std::vector<double> errors;
  // The least times of async and of the others, by place.
  struct Times {
    std::optional<double> async, other;
  };
  std::map<std::tuple<int, std::int64_t, std::int64_t>, Times> places;
  int series = 0;
  for (const auto* points : {&results.by_steps, &results.by_interval, &results.by_ratio}) {
    ++series;
    for (const AsyncPoint& point : *points) {
      if (!point.fits) continue;
      const double error = std::abs(point.error());
      errors.push_back(error);
      summary.near += error <= kNear ? 1 : 0;
      summary.spread = std::max(summary.spread, point.spread());
      summary.noisy += error > kNear && point.spread() > kNear ? 1 : 0;
      summary.exact &= point.exact;
      summary.same_gradients &= point.same_gradient;
      summary.same_forwards &= point.measured.forwards == point.predicted.forwards;
      if (point.interval || point.strategy == "auto") continue;
      Times& times = places[{series, point.steps, point.sweeps}];
      auto& least = point.strategy == "async" ? times.async : times.other;
      least = std::min(least.value_or(point.measured.seconds), point.measured.seconds);
    }
  }
  for (const auto& [place, times] : places) {
    if (!times.async || !times.other) continue;
    ++summary.places;
    summary.fastest += *times.async <= *times.other ? 1 : 0;
    summary.slower = std::max(summary.slower, *times.async / *times.other - 1);
  }
  summary.points = static_cast<std::int64_t>(errors.size());
  if (!errors.empty()) {
    const auto middle = errors.begin() + static_cast<std::ptrdiff_t>(errors.size() / 2);
    std::ranges::nth_element(errors, middle);
    summary.median_error = *middle;
  }
  return summary;
}

AsyncResults run_async_bench(const AsyncSetup& setup) { return AsyncBench(setup).run(); }

}  // namespace ebb
