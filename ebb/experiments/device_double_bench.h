// SPDX-License-Identifier: Apache-2.0
// The experiment of Bencheikh, Finkbeiner and Neftci (2024) on a GPU: how long a sequence and how wide a spiking net fit a small part of
// its memory, with states in pinned memory of the host or not, and what that costs against plain backpropagation. What is printed is left
// to others.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "ebb/experiments/device_trials.h"

namespace ebb {

struct DeviceDoubleSetup {
  std::string cell = "lif", number = "bf16";
  std::int64_t input = 64, hidden = 1024, batch = 64;
  std::int64_t chunk = 0;                  // 0: chosen for each trial
  double density = 1;                      // of the recurrent weights
  double rate = 0.05;                      // of input spikes
  double weight_scale = 1;                 // which sets the activity
  Bytes budget = 64_MiB, host_budget = 0;  // of the device's memory and of the host's
  std::optional<std::int64_t> steps = {};  // time steps of plain; none: the most that fit
  std::vector<std::int64_t> longer = {};   // the second series: times the time steps of plain
  std::int64_t long_factor = 10;           // times the time steps of plain that the goal names
  std::int64_t large_factor = 4;           // times the units
  std::int64_t most_searched = 64;         // times the time steps of plain, or its units
  int repeat = 5;
  std::stop_token stop = {};
  // What is done now, and how much of all: 0 to 1.
  std::function<void(const std::string&, double)> progress = {};
};

struct DeviceDoubleResults {
  std::string device;
  DeviceTrial plain;  // in the budget, over as many time steps as fit; against itself
  // Series, each over the strategies of double_strategies(): "longest" over long_factor times the time steps of plain, or as many as
  // fit; "length" over setup.longer, of double and auto; "largest" with large_factor times the units, or as many as fit and as the
  // device takes. Ratios are to plain backpropagation of the same net over the same time steps in memory without a limit.
  std::vector<DeviceTrial> trials;

  // Measured, a time step, against plain in the budget.
  double in_budget(const DeviceTrial& trial) const {
    return trial.per_step(trial.trial.measured) / plain.per_step(plain.trial.measured);
  }
};

// Throws Error(cancelled) after a stop, Error(infeasible_budget) where plain has no room for a single time step, Error(out_of_memory)
// where the device has less memory than the budget says, Error(unavailable) where there is no device, Error(invalid_argument) for a net that
// a device does not run.
DeviceDoubleResults run_device_double_bench(const DeviceDoubleSetup& setup);

}  // namespace ebb
