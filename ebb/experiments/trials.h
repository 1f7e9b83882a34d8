// SPDX-License-Identifier: Apache-2.0
// Several ways of running one net, predicted and measured side by side: all of them in turn, again
// and again, so that a machine that is busy for a while is so for each of them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "ebb/plan/chain.h"
#include "ebb/plan/plan.h"
#include "ebb/plan/platform.h"
#include "ebb/run/network.h"
#include "ebb/store/slow_tier.h"

namespace ebb {

// One way, and what came of it.
struct Trial {
  std::string strategy;
  Bytes budget = kUnlimited;
  bool sync = false;  // transfers and compute take turns

  bool fits = false;
  std::optional<Bytes> least_budget = {};  // where it does not fit and some budget would do
  std::string chosen = {};                 // the strategy that made the plan: for auto, its choice
  std::vector<std::pair<std::string, std::int64_t>> parameters = {};
  Prediction predicted = {}, measured = {};        // of several runs the best
  double slowest = 0;                              // seconds of the slowest run
  double predicted_ratio = 0, measured_ratio = 0;  // time / that of the first trial
  // The same of one run each, which ran one after the other: the least and the greatest.
  double least_ratio = 0, greatest_ratio = 0;
  bool exact = true;           // see Report
  bool same_gradient = false;  // bit for bit, as the first trial's

  // How much longer the slowest run took than the best one.
  double spread() const { return slowest / measured.seconds - 1; }
};

// What trials have in common. Seconds are `costs`, bytes are those of the net.
struct TrialRules {
  const Chain& costs;
  Platform platform = {};  // fast is that of each trial
  std::vector<SlowTier> tiers = {};
  int repeat = 1;  // best of this many
  std::stop_token stop = {};
  std::function<void(double)> progress = {};  // 0 to 1
};

// Fills in the trials. The first one, which the others are compared with, has to fit. Throws
// Error(cancelled) after a stop, Error(io) for a tier that fails.
void run_trials(Network<float>& net, const TrialRules& rules, std::vector<Trial>& trials);

// A plan alone: the same, without running anything. nullopt: it does not fit.
std::optional<Prediction> predict(const Chain& chain, Platform platform, const Trial& trial);

// The quickest of `repeat` measurements of the net's steps, as of several runs.
Chain quickest_chain(Network<float>& net, bool has_tiers, int repeat, double seconds,
                     const std::stop_token& stop);

void check_stop(const std::stop_token& stop);

}  // namespace ebb
