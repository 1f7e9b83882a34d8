// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/host_learner.h"

#include <algorithm>
#include <optional>
#include <span>
#include <sstream>
#include <utility>

#include "ebb/core/at.h"
#include "ebb/core/error.h"
#include "ebb/plan/strategies.h"

namespace ebb {

template <class Number>
HostLearner<Number>::HostLearner(const LearnerSetup& setup, const Batch& sample,
                                 std::string passed_over)
    : setup_(setup),
      passed_over_(std::move(passed_over)),
      run_(setup.options, setup.shape, setup.tiers, setup.rank, setup.ranks, sample,
           setup.plans_only),
      optimiser_(setup.options.optimiser, run_.network().values().size()) {}

template <class Number>
void HostLearner<Number>::learn(const Batch& batch, double scale, std::uint64_t iteration,
                                std::stop_token stop) {
  score_ = run_.learn(batch, scale, iteration, std::move(stop));
}

template <class Number>
double HostLearner<Number>::step(double rate) {
  const std::span<Number> values = run_.network().values();
  // What does not learn must not decay either.
  std::vector<Number> fixed;
  for (const NetworkParameter& own : run_.network().layout()) {
    const std::span<Number> part = values.subspan(at(own.offset), at(own.size));
    if (!own.learns) fixed.insert(fixed.end(), part.begin(), part.end());
  }
  const double norm = optimiser_.step(values, run_.gradient(), rate);
  auto next = fixed.begin();
  for (const NetworkParameter& own : run_.network().layout()) {
    if (own.learns) continue;
    std::copy_n(next, own.size, values.begin() + own.offset);
    next += own.size;
  }
  return norm;
}

template <class Number>
TrainPlan HostLearner<Number>::plan() {
  return described(run_.run().plan(), budget_bytes(setup_.options, run_.plain_bytes()));
}

template <class Number>
TrainPlan HostLearner<Number>::plan_within(double slowdown) {
  const Run& run = run_.run();
  PlanOptions how;
  how.strategy = "store_all";
  const Plan all = make_plan(run.chain(), run.platform(), how);
  how.strategy = truncation(setup_.options) > 0 ? "auto" : setup_.options.strategy;
  const std::optional<SweepPoint> found =
      least_within(run.chain(), run.platform(), how, slowdown * all.prediction.seconds);
  if (found) return described(found->plan, found->budget);
  std::ostringstream text;
  text << "no budget makes strategy " << how.strategy << " as fast as " << slowdown
       << " x keeping everything; with any memory it takes "
       << run.plan().prediction.seconds / all.prediction.seconds << " x";
  throw Error(ErrorCode::infeasible_budget, text.str(), {},
              "allow more time, or take strategy auto");
}

template <class Number>
TrainPlan HostLearner<Number>::described(const Plan& chosen, Bytes budget) {
  const Run& run = run_.run();
  Network<Number>& network = run_.network();
  TrainPlan plan;
  plan.device = "cpu";
  plan.passed_over = passed_over_;
  plan.parameters = static_cast<std::int64_t>(network.values().size());
  plan.threads = network_of(setup_.options, setup_.shape, setup_.rank, setup_.ranks).threads;
  plan.steps = network.steps();
  plan.chunk = network.chunk();
  plan.windows = run_.windows();
  plan.strategy = chosen.strategy;
  plan.prediction = chosen.prediction;
  plan.peak = plan.prediction.peak.front();
  plan.planning = run.plan().tables;
  plan.plain = run_.plain_bytes();
  plan.budget = budget;
  const StepCost& cost = run.chain().at(0);
  plan.plain_seconds = static_cast<double>(plan.steps) * (cost.record + cost.backward);
  plan.beside = run_.beside_bytes() + optimiser_.bytes();
  for (const Tier& tier : run.platform().tiers) plan.tiers.push_back(tier.name);
  return plan;
}

template class HostLearner<float>;
template class HostLearner<double>;

}  // namespace ebb
