// SPDX-License-Identifier: Apache-2.0
// A net and its optimiser at work on batches, wherever they are: what the loop of training sees of them. Private.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "ebb/data/batch.h"
#include "ebb/data/task.h"
#include "ebb/run/network.h"
#include "ebb/run/report.h"
#include "ebb/store/slow_tier.h"
#include "ebb/train/batch_loss.h"
#include "ebb/train/optimiser.h"
#include "ebb/train/options.h"
#include "ebb/train/ranks.h"
#include "ebb/train/train.h"

namespace ebb {

template <class Number>
class Learner {
 public:
  Learner() = default;
  Learner(const Learner&) = delete;
  Learner& operator=(const Learner&) = delete;
  virtual ~Learner() = default;

  // Whether the host is free while it works: learn returns at once then.
  virtual bool is_elsewhere() const = 0;

  // The gradient of the batch's losses, added up and times `scale`. The batch is not read any more when it returns.
  virtual void learn(const Batch& batch, double scale, std::uint64_t iteration,
                     std::stop_token stop) = 0;
  // Of the batch that it learns from; waits for it.
  virtual Score score() = 0;
  // The gradients of all processes are added up in each of them.
  virtual void sum_gradient(Ranks& ranks) = 0;
  // What the gradient does to the parameters; its norm, as Optimiser::step has it.
  virtual double step(double rate) = 0;
  // Forward only, without dropout.
  virtual Score test(const Batch& batch) = 0;
  // Of the last batch; see Network. Of spikes on a device nothing is known: 0.
  virtual double activity() const = 0;
  virtual std::int64_t dropped_spikes() const = 0;

  // As the host has them: of a device what they were when they were last fetched.
  virtual Network<Number>& network() = 0;
  virtual Optimiser<Number>& optimiser() = 0;
  virtual void fetch() = 0;
  // They have been changed on the host.
  virtual void restored() = 0;

  // All but what the loop of training knows by itself.
  virtual TrainPlan plan() = 0;
  // The same in the least memory whose iteration takes at most `slowdown` times that of keeping everything; see find_budget.
  virtual TrainPlan plan_within(double slowdown) = 0;
  virtual Report report() const = 0;
  // See BatchRun; never on a device, whose figures are given.
  virtual std::optional<WrongPrediction> planned_again() const { return {}; }
};

// For the options' device. Measures and plans on `sample`; with `plans_only` the plan's memory is not taken, and nothing but plan,
// plan_within, network, optimiser and restored may be called.
struct LearnerSetup {
  TrainOptions options;
  TaskShape shape;
  std::vector<SlowTier> tiers;
  int rank = 0, ranks = 1;
  int local_rank = 0;  // among the processes of this machine
  bool plans_only = false;
  bool resumes = false;  // from a checkpoint, perhaps of another device
};
template <class Number>
std::unique_ptr<Learner<Number>> make_learner(const LearnerSetup& setup, const Batch& sample);

}  // namespace ebb
