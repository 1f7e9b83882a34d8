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
#include "ebb/train/ranks.h"

namespace ebb {

// What is known before the first iteration.
struct TrainPlan {
  TaskShape shape;
  std::int64_t iterations = 0, first = 0;  // all; done before, where it was resumed
  std::int64_t parameters = 0;
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
  std::vector<SlowTier> tiers;
  std::stop_token stop;
  std::function<void(const TrainPlan&)> planned;
  std::function<void(const TrainLine&)> line;
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
// Error(infeasible_budget), Error(io). With several processes each of them calls it; only rank 0
// writes files, and a process that throws must end all (see Ranks).
TrainResult train(const TrainOptions& options, const TrainSettings& settings, Ranks& ranks);
// Goes on from the checkpoint in settings.out, which the caller has loaded; it is not read again.
TrainResult train(const TrainOptions& options, const TrainSettings& settings, Ranks& ranks,
                  Checkpoint from);

// The options that a checkpoint was trained with.
TrainOptions checkpoint_options(const Checkpoint& checkpoint,
                                const std::filesystem::path& directory);
TrainOptions checkpoint_options(const std::filesystem::path& directory);

}  // namespace ebb
