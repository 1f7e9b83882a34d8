// SPDX-License-Identifier: Apache-2.0
// A net at work on batches inside a budget: their loss and its gradient.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "ebb/data/batch.h"
#include "ebb/data/task.h"
#include "ebb/run/network.h"
#include "ebb/run/run.h"
#include "ebb/train/batch_loss.h"
#include "ebb/train/options.h"
#include "ebb/train/prediction_check.h"

namespace ebb {

// The options' net for a task, of one of several processes.
NetworkOptions network_of(const TrainOptions& options, const TaskShape& shape, int rank, int ranks);

template <class Number>
class BatchRun {
 public:
  // Measures and plans on `sample`; with `memory_late` learn() or test() takes the plan's memory.
  // Throws like Network and Run.
  BatchRun(const TrainOptions& options, const TaskShape& shape, std::vector<SlowTier> tiers,
           int rank, int ranks, const Batch& sample, bool memory_late = false);

  Network<Number>& network() { return network_; }
  const Run& run() const { return *run_; }
  // What keeping everything would take.
  Bytes plain_bytes() const { return network_.plain_bytes() * windows(); }
  // 1, or how many gradients of truncated length make one iteration.
  std::int64_t windows() const;

  // The gradient of the batch's losses, added up and times `scale`, is in gradient() then.
  Score learn(const Batch& batch, double scale, std::uint64_t iteration, std::stop_token stop);
  std::span<Number> gradient() { return windows() > 1 ? gradient_ : network_.gradient(); }
  // Why the last learn() began with measuring costs again and a new plan: with the same gradients, in
  // the same budget.
  const std::optional<WrongPrediction>& planned_again() const { return planned_again_; }
  // All that it holds beside the budget.
  Bytes beside_bytes() const;
  // Forward only, without dropout.
  Score test(const Batch& batch);
  // Of the last batch: share of spiking units' time steps that were spikes, and spikes that
  // max_activity kept from being heard; of this process alone.
  double activity() const { return activity_; }
  std::int64_t dropped_spikes() const { return dropped_; }

 private:
  bool has_choice() const;
  bool plan_again();
  void give(const Batch& batch, double scale);
  void give_window(std::int64_t window);
  void count();
  std::span<const Number> values_at(std::int64_t t);
  std::span<const std::uint64_t> spikes_at(std::int64_t t);

  TaskShape shape_;
  Network<Number> network_;
  BatchLoss<Number> loss_;
  const Batch* given_ = nullptr;
  std::int64_t first_ = 0;  // time step of the window
  double activity_ = 0;
  std::int64_t dropped_ = 0;
  std::vector<Number> row_;
  std::vector<std::uint64_t> empty_words_;
  std::vector<std::int64_t> lengths_;
  std::vector<std::byte> before_, after_, adjoint_, of_before_;
  std::vector<Number> gradient_;  // of several windows, added up
  std::unique_ptr<Run> run_;
  PredictionCheck check_;
  std::optional<WrongPrediction> wrong_, planned_again_;
};

}  // namespace ebb
