// SPDX-License-Identifier: Apache-2.0
// The experiment of Kukreja, Hückelheim and Gorman (2018): time and memory of asynchronous
// checkpointing against other strategies, over the number of steps, over the interval, and over the
// ratio of transfer to compute; each point predicted and measured. What is printed is left to
// others.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "ebb/plan/chain.h"
#include "ebb/plan/plan.h"
#include "ebb/plan/platform.h"
#include "ebb/store/real_tier.h"

namespace ebb {

struct AsyncSetup {
  std::int64_t cells = 0;                 // floats in a state
  std::int64_t sweeps = 1;                // of the first two series
  std::vector<std::int64_t> steps;        // of the first series; the last one of the others
  std::vector<std::int64_t> intervals;    // of the second; those beyond the steps are left out
  std::vector<std::int64_t> vary_sweeps;  // of the third
  std::optional<Bytes> budget;            // none: the working set and 10 states
  std::vector<RealTier> tiers;
  int repeat = 1;  // best of this many
  std::stop_token stop;
  double profile_seconds = 0.3;  // about, for each step and tier
  // What is done now, and how much of all: 0 to 1.
  std::function<void(const std::string&, double)> progress = {};
};

// One run, or why there was none.
struct AsyncPoint {
  std::string strategy;
  std::int64_t steps = 0, sweeps = 0;
  std::optional<std::int64_t> interval;  // where it was fixed
  double forward_seconds = 0;            // of one step
  double transfer_seconds = 0;           // a state written to the first tier
  double ratio() const { return transfer_seconds / forward_seconds; }

  bool fits = false;
  std::optional<Bytes> least_budget;  // where it does not fit and some budget would do
  std::string chosen;                 // the strategy that made the plan: for auto, its choice
  std::vector<std::pair<std::string, std::int64_t>> parameters;
  Prediction predicted, measured;  // of several runs the best
  double slowest = 0;              // seconds of the slowest run
  // Fast memory and tiers that are memory.
  Bytes footprint = 0;
  bool exact = true;  // see Report
  // The gradient has the same bits as that of the first strategy with these steps and sweeps.
  bool same_gradient = false;

  double per_step(const Prediction& found) const {
    return found.seconds / static_cast<double>(steps);
  }
  // measured / predicted - 1
  double error() const { return measured.seconds / predicted.seconds - 1; }
  // How much longer the slowest run took than the best one.
  double spread() const { return slowest / measured.seconds - 1; }
};

struct AsyncResults {
  Bytes budget = 0;
  Chain chain = Chain::uniform(0, {});  // of the first two series, with the last number of steps
  Platform platform;
  std::vector<AsyncPoint> by_steps, by_interval, by_ratio;
};

// How the results bear out the paper's claim and the predictions.
struct AsyncSummary {
  std::int64_t places = 0;   // of (a) and (c), where async and another one fit
  std::int64_t fastest = 0;  // of these, async was measured to be the fastest; auto does not count
  double slower = 0;         // elsewhere, by at most this part of the fastest one's time
  std::int64_t points = 0;   // that ran
  std::int64_t near = 0;     // of these, measured within 10 % of predicted
  std::int64_t noisy = 0;    // of the others, with runs more than 10 % apart
  double spread = 0;         // the largest of any point
  double median_error = 0;   // of |measured / predicted - 1|
  bool exact = true;         // everywhere
  bool same_gradients = true;
  bool same_forwards = true;  // as predicted, everywhere
};
AsyncSummary summary_of(const AsyncResults& results);

// The strategies compared, in the order of the results. Those of `in_turn` run as published:
// transfers and compute take turns.
std::vector<std::string> compared_strategies();
bool in_turn(const std::string& strategy);

// Throws Error(cancelled) after a stop, Error(io) for a tier that fails, Error(infeasible_budget)
// if no strategy fits.
AsyncResults run_async_bench(const AsyncSetup& setup);

}  // namespace ebb
