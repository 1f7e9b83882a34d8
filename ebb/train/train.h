// SPDX-License-Identifier: Apache-2.0
// Training: a task, a net and an optimiser in a loop that can be stopped and resumed at any time with
// the same bits as if it had not been.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "ebb/data/task.h"
#include "ebb/run/report.h"
#include "ebb/store/slow_tier.h"
#include "ebb/train/checkpoint.h"
#include "ebb/train/metrics.h"
#include "ebb/train/options.h"
#include "ebb/train/prediction_check.h"
#include "ebb/train/ranks.h"
#include "ebb/train/run_lock.h"

namespace ebb {

// What is known before the first iteration.
struct TrainPlan {
  TaskShape shape;
  std::int64_t iterations = 0, first = 0;  // all; done before, where it was resumed
  std::int64_t parameters = 0;
  // "cpu", or a GPU and, unless it was only planned, its name. On a GPU budget, peak, plain and beside are of its memory, and times are
  // predicted by figures of an H200.
  std::string device;
  // Where it was trained before it was resumed, if that was another kind of device: bits are not those of going on there.
  std::string trained_on;
  std::string
      passed_over;  // why device auto did not take the GPU that is there; empty: it did, or there is none
  int threads = 0, ranks = 1;
  std::int64_t steps = 0, chunk = 0;  // that the plan counts; time steps in each
  std::int64_t windows = 1;           // truncated gradients in an iteration; 1: exact
  std::string strategy;               // the one chosen
  Prediction prediction;              // of one iteration, but for the windows
  Bytes budget = 0, peak = 0;
  Bytes plain = 0;           // what keeping everything takes
  double plain_seconds = 0;  // and how long an iteration takes then
  // All else that training holds: parameters, gradients, weights laid out for products, the
  // optimiser's state as chosen, initial and final states, the batch, data that the task has read.
  Bytes beside = 0;
  // Tables that planning took at most, before the budget's memory was taken.
  Bytes planning = 0;
  // The slow tiers; what they hold at most is in prediction.peak, from 1 on.
  std::vector<std::string> tiers;
};

// One iteration, or a look at the test samples.
struct TrainLine {
  Metrics metrics;
  double activity = 0;  // share of spikes, of nets that spike
  std::int64_t dropped_spikes = 0;
};

struct TrainSettings {
  std::filesystem::path out;  // checkpoints and metrics go there; empty: none are kept
  bool resume = false;        // go on from the checkpoint in `out`
  // Continue with data that are not those of the checkpoint; otherwise they are an error.
  bool data_changed_ok = false;
  // Of `out`, from a caller that has looked into it and wants what it saw to stay; null: train() takes it,
  // before it touches anything there.
  const RunLock* lock = nullptr;
  std::vector<SlowTier> tiers;
  std::stop_token stop;
  std::function<void(const TrainPlan&)> planned;
  // Costs proved wrong, were measured again, and this is the new plan.
  std::function<void(const TrainPlan&, const WrongPrediction&)> planned_again;
  std::function<void(const TrainLine&)> line;
  // Called with the reason where metrics or a checkpoint cannot be written, and training goes on: lines
  // wait for the next time, and the last good checkpoint is as it was. Null: it is an error, as it
  // always is after the last iteration.
  std::function<void(const std::string&)> save_failed;
};

struct TrainResult {
  std::int64_t iterations = 0;   // done
  bool stopped = false;          // before the last one, by the stop token
  double seconds = 0;            // of training, that before a checkpoint included
  std::optional<Metrics> test;   // the last one
  std::optional<Metrics> train;  // of the last iteration
  Report report;                 // of the last iteration's run
};

// Throws Error(invalid_argument) for options that cannot be and for training that diverges,
// Error(infeasible_budget), Error(io), also where another run writes into settings.out. With several processes each of them calls it; only rank 0
// writes files, and a process that throws must end all (see Ranks).
TrainResult train(const TrainOptions& options, const TrainSettings& settings, Ranks& ranks);
// Goes on from the checkpoint in settings.out, which the caller has loaded; it is not read again. Without
// settings.lock it throws Error(io) where another run has gone on from it since.
TrainResult train(const TrainOptions& options, const TrainSettings& settings, Ranks& ranks,
                  Checkpoint from);

// What train() would say before the first iteration; the same is measured, and nothing is trained,
// no file is written (settings.out is not looked at but for the checkpoint of settings.resume) and
// the plan's memory is not taken. Throws as train() does.
TrainPlan plan_training(const TrainOptions& options, const TrainSettings& settings, Ranks& ranks);
TrainPlan plan_training(const TrainOptions& options, const TrainSettings& settings, Ranks& ranks,
                        Checkpoint from);
// The same in the least memory, to a thousandth, whose predicted iteration takes at most `slowdown`
// times that of keeping everything: TrainPlan::budget. options.budget does not count. Throws
// Error(infeasible_budget) where the strategy is that fast in no budget.
TrainPlan find_budget(const TrainOptions& options, const TrainSettings& settings, Ranks& ranks,
                      double slowdown);
TrainPlan find_budget(const TrainOptions& options, const TrainSettings& settings, Ranks& ranks,
                      double slowdown, Checkpoint from);

// The options that a checkpoint was trained with.
TrainOptions checkpoint_options(const Checkpoint& checkpoint,
                                const std::filesystem::path& directory);
TrainOptions checkpoint_options(const std::filesystem::path& directory);

}  // namespace ebb
