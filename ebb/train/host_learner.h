// SPDX-License-Identifier: Apache-2.0
// Learning on the host's processors. Private.
#pragma once

#include <string>

#include "ebb/train/batch_run.h"
#include "ebb/train/learner.h"

namespace ebb {

template <class Number>
class HostLearner : public Learner<Number> {
 public:
  // `passed_over`: see TrainPlan. Throws like BatchRun.
  HostLearner(const LearnerSetup& setup, const Batch& sample, std::string passed_over);

  bool is_elsewhere() const override { return false; }
  void learn(const Batch& batch, double scale, std::uint64_t iteration,
             std::stop_token stop) override;
  Score score() override { return score_; }
  void sum_gradient(Ranks& ranks) override { ranks.sum(run_.gradient()); }
  double step(double rate) override;
  Score test(const Batch& batch) override { return run_.test(batch); }
  double activity() const override { return run_.activity(); }
  std::int64_t dropped_spikes() const override { return run_.dropped_spikes(); }
  Network<Number>& network() override { return run_.network(); }
  Optimiser<Number>& optimiser() override { return optimiser_; }
  void fetch() override {}
  void restored() override {}
  TrainPlan plan() override;
  TrainPlan plan_within(double slowdown) override;
  Report report() const override { return run_.run().report(); }
  std::optional<WrongPrediction> planned_again() const override { return run_.planned_again(); }

 private:
  TrainPlan described(const Plan& chosen, Bytes budget);

  LearnerSetup setup_;
  std::string passed_over_;
  BatchRun<Number> run_;
  Optimiser<Number> optimiser_;
  Score score_;
};

}  // namespace ebb
