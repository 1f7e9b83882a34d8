// SPDX-License-Identifier: Apache-2.0
// The experiment of Bencheikh, Finkbeiner and Neftci (2024): how long a sequence and how large a
// sparse spiking net fit a small local memory over a large slow one, and what that costs against
// plain backpropagation through time; against activity and against the slow memory's bandwidth.
// What is printed is left to others.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "ebb/experiments/trials.h"
#include "ebb/plan/chain.h"
#include "ebb/plan/platform.h"
#include "ebb/store/real_tier.h"

namespace ebb {

struct DoubleSetup {
  std::int64_t input = 64, hidden = 512, output = 20, batch = 8, chunk = 1;
  double density = 0.1;               // of the recurrent weights
  double rate = 0.05;                 // of input spikes
  double weight_scale = 1;            // which sets the activity
  Bytes budget = 0;                   // of local memory
  std::vector<RealTier> tiers;        // each an arrangement of its own: local memory over it
  std::optional<std::int64_t> steps;  // time steps of plain; none: the most that fit
  std::vector<std::int64_t> longer;   // the second series: that many times the time steps of plain
  std::int64_t long_factor = 10;  // the other series run this many times the time steps of plain
  std::int64_t large_factor = 4;  // the third series: this many times the units
  std::int64_t most_searched = 1024;  // how far auto is followed: times the time steps of plain
  std::vector<std::int64_t> rates;    // the fourth series: percents
  int threads = 1;
  int repeat = 1;  // best of this many
  std::stop_token stop = {};
  double profile_seconds = 0.3;  // about, for each step and tier
  // What is done now, and how much of all: 0 to 1.
  std::function<void(const std::string&, double)> progress = {};
};

// One run. Ratios are to plain backpropagation of the same net over the same time steps with memory
// that has no limit.
struct DoublePoint {
  std::int64_t time_steps = 0, hidden = 0, parameters = 0;
  double rate = 0, activity = 0;  // of inputs, of units
  // The most time steps (first series) or units (third) that the strategy fits into the budget;
  // kUnlimited: a billion and more.
  std::int64_t most = 0;
  Trial trial;
  double plain_seconds = 0;  // measured, for one time step
};

// Predicted ratios with the slow memory's rates multiplied.
struct BandwidthPoint {
  double factor = 1;
  std::vector<std::pair<std::string, std::optional<double>>> ratios;  // none: does not fit
};

// Local memory over one slow memory.
struct DoubleArrangement {
  Platform platform;
  // Of each strategy: transfers hidden, then in turn.
  std::vector<DoublePoint> longest;
  std::vector<DoublePoint> by_length;
  std::vector<DoublePoint> largest;
  std::vector<DoublePoint> by_activity;
  std::vector<BandwidthPoint> by_bandwidth;
  // Times the time steps of plain: the most at which auto is predicted to take at most kMarginal
  // times the time, and where the search ended.
  std::int64_t furthest = 0, searched = 0;
};
inline constexpr double kMarginal = 1.1;

struct DoubleResults {
  Chain chain = Chain::uniform(0, {});  // of the net as asked, over the time steps of plain
  std::int64_t plain_steps = 0;         // time steps
  std::int64_t parameters = 0;
  double activity = 0;
  std::vector<DoubleArrangement> arrangements;
  // The paper's schedule runs every step forward three times.
  double paper_ratio() const;
};

// Of the authors' nets: membranes below get no gradient.
inline constexpr double kSecondThreshold = 0.9;

// The strategies compared, in the order of the results; the first is plain.
std::vector<std::string> double_strategies();

// Throws Error(cancelled) after a stop, Error(io) for a tier that fails, Error(infeasible_budget)
// where plain has no room for a single step.
DoubleResults run_double_bench(const DoubleSetup& setup);

}  // namespace ebb
