// SPDX-License-Identifier: Apache-2.0
// The experiment of Gruslys, Munos, Danihelka, Lanctot and Graves (2016): what a recurrent net's
// gradient costs in a small part of the memory that keeping everything needs, and how the cost of a
// time step grows with the sequence's length; beside Chen's square root rule. Each point is predicted
// and measured. What is printed is left to others.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "ebb/experiments/trials.h"
#include "ebb/plan/chain.h"

namespace ebb {

struct GruslysSetup {
  std::int64_t input = 8, hidden = 128, batch = 50;
  std::int64_t steps = 1000;          // time steps of the first series
  std::int64_t chunk = 0;             // time steps to one step of a plan; 0: chosen
  std::vector<std::int64_t> memory;   // of the first series: percents of plain memory
  std::vector<std::int64_t> lengths;  // of the second series: time steps
  std::vector<std::int64_t> budgets;  // of the second series: percents, as above
  int threads = 0;                    // 0: one for each processor
  int repeat = 1;                     // best of this many
  std::stop_token stop = {};
  double profile_seconds = 0.3;  // about, for the step
  // What is done now, and how much of all: 0 to 1.
  std::function<void(const std::string&, double)> progress = {};
};

struct GruslysPoint {
  std::int64_t time_steps = 0;
  std::optional<std::int64_t>
      percent;  // of plain memory at GruslysSetup::steps, if a budget is set
  Trial trial;
  double per_step(const Prediction& found) const {
    return found.seconds / static_cast<double>(time_steps);
  }
};

struct GruslysResults {
  std::int64_t chunk = 1, parameters = 0;
  Bytes plain = 0;                      // keeping everything, at GruslysSetup::steps
  Chain chain = Chain::uniform(0, {});  // of the first series
  // Plain first, then auto in each part of memory, then Chen's rule, then auto in its memory.
  std::vector<GruslysPoint> by_memory;
  // For each length: plain, auto in each budget, Chen's rule.
  std::vector<GruslysPoint> by_steps;
};

// As in the paper's abstract: that many percent of the memory for that much time.
inline constexpr std::int64_t kGoalPercent = 5;
inline constexpr double kGoalRatio = 4.0 / 3;

// Throws Error(cancelled) after a stop.
GruslysResults run_gruslys_bench(const GruslysSetup& setup);

}  // namespace ebb
