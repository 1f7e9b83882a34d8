// SPDX-License-Identifier: Apache-2.0
#include "ebb/experiments/trials.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "ebb/core/error.h"
#include "ebb/experiments/as_prediction.h"
#include "ebb/plan/strategies.h"
#include "ebb/run/profile.h"
#include "ebb/run/run.h"
#include "ebb/run/sizes.h"

namespace ebb {
namespace {

class Together {
 public:
  Together(Network<float>& net, const TrialRules& rules, std::vector<Trial>& trials)
      : net_(net), rules_(rules), trials_(trials) {
    const Bytes state = net.bytes(0).state;
    initial_.resize(static_cast<std::size_t>(state));
    final_.resize(initial_.size());
    adjoint_.resize(initial_.size());
    of_initial_.resize(initial_.size());
    for (Trial& trial : trials_) runs_.push_back(made(trial));
  }

  void run() {
    const double all = static_cast<double>(runs_.size()) * rules_.repeat;
    double done = 0;
    for (int k = 0; k < rules_.repeat; ++k) {
      double first = 0;  // seconds of the first trial
      for (std::size_t i = 0; i < runs_.size(); ++i) {
        if (rules_.progress) rules_.progress(done++ / all);
        if (!runs_[i]) continue;
        Trial& trial = trials_[i];
        const double seconds = measure(*runs_[i], trial, k == 0);
        if (i == 0) first = seconds;
        const double ratio = seconds / first;
        trial.least_ratio = k == 0 ? ratio : std::min(trial.least_ratio, ratio);
        trial.greatest_ratio = k == 0 ? ratio : std::max(trial.greatest_ratio, ratio);
      }
    }
    for (Trial& trial : trials_) {
      if (!trial.fits) continue;
      trial.predicted_ratio = trial.predicted.seconds / trials_[0].predicted.seconds;
      trial.measured_ratio = trial.measured.seconds / trials_[0].measured.seconds;
    }
  }

 private:
  std::optional<Run> made(Trial& trial) const {
    check_stop(rules_.stop);
    RunOptions options;
    options.budget = trial.budget;
    options.tiers = rules_.tiers;
    options.strategy = trial.strategy;
    options.sync = trial.sync;
    options.chain = chain_of(net_, !rules_.tiers.empty(), net_.steps(), &rules_.costs);
    options.platform = rules_.platform;
    options.platform->fast = trial.budget;
    options.stop = rules_.stop;
    options.replan_factor = 0;
    options.timing_only = true;
    try {
      Run run(net_, std::move(options));
      trial.fits = true;
      trial.chosen = run.plan().strategy;
      trial.parameters = run.plan().parameters;
      trial.predicted = run.plan().prediction;
      return run;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::infeasible_budget) throw;
      trial.least_budget = error.least_budget();
      return std::nullopt;
    }
  }

  // Returns the seconds.
  double measure(Run& run, Trial& trial, bool first) {
    try {
      run.forward(initial_, final_);
      run.backward(adjoint_, of_initial_);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::cancelled) fail(ErrorCode::cancelled, "cancelled");
      throw;
    }
    const Report report = run.report();
    const Measured& measured = report.measured;
    trial.exact = report.exact;
    trial.slowest = first ? measured.seconds : std::max(trial.slowest, measured.seconds);
    if (first || measured.seconds < trial.measured.seconds)
      trial.measured = as_prediction(measured);
    const std::span<const float> gradient = net_.gradient();
    if (reference_.empty()) reference_.assign(gradient.begin(), gradient.end());
    const bool same = std::memcmp(reference_.data(), gradient.data(), gradient.size_bytes()) == 0;
    trial.same_gradient = same && (first || trial.same_gradient);
    return measured.seconds;
  }

  Network<float>& net_;
  const TrialRules& rules_;
  std::vector<Trial>& trials_;
  std::vector<std::optional<Run>> runs_;
  std::vector<std::byte> initial_, final_, adjoint_, of_initial_;
  std::vector<float> reference_;
};

}  // namespace

void check_stop(const std::stop_token& stop) {
  if (stop.stop_requested()) fail(ErrorCode::cancelled, "cancelled");
}

void run_trials(Network<float>& net, const TrialRules& rules, std::vector<Trial>& trials) {
  Together(net, rules, trials).run();
}

std::optional<Prediction> predict(const Chain& chain, Platform platform, const Trial& trial) {
  platform.fast = trial.budget;
  PlanOptions options;
  options.strategy = trial.strategy;
  options.sync = trial.sync;
  try {
    return make_plan(chain, platform, options).prediction;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::infeasible_budget) throw;
    return std::nullopt;
  }
}

Chain quickest_chain(Network<float>& net, bool has_tiers, int repeat, double seconds,
                     const std::stop_token& stop) {
  const auto total = [](const Chain& chain) {
    return chain.at(0).forward + chain.at(0).record + chain.at(0).backward;
  };
  ProfileOptions options;
  options.step_seconds = seconds;
  std::optional<Chain> best;
  for (int k = 0; k < repeat; ++k) {
    check_stop(stop);
    Chain next = profile_step(net, has_tiers, options);
    if (!best || total(next) < total(*best)) best = std::move(next);
  }
  return *best;
}

}  // namespace ebb
