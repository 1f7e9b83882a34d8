// SPDX-License-Identifier: Apache-2.0
// Ways of running one layer on a CUDA device, predicted and measured: as trials.h for nets on the CPU. Inputs are made chunk by chunk and
// the gradient comes in by the final state, so that no array has the sequence's length.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "ebb/experiments/trials.h"
#include "ebb/run/device_network.h"

namespace ebb {

// What the trials of an experiment have in common.
struct DeviceNet {
  LayerOptions layer;  // but for its units
  std::int64_t batch = 0;
  std::string number = "bf16";
  double rate = 0;  // of input spikes; 0: inputs are numbers
};

// One way, and what came of it. Of `trial`, ratios are left to the experiment.
struct DeviceTrial {
  std::string series = {};
  std::int64_t time_steps = 0, hidden = 0;
  Bytes host_budget = 0;
  std::int64_t chunk = 0;       // asked for, 0: to be chosen; then that which ran
  std::int64_t parameters = 0;  // of the net
  Trial trial = {};

  // Where the series asks for them.
  std::optional<std::int64_t> percent = {};  // of plain memory
  std::optional<std::int64_t> most =
      {};                     // time steps or units that fit; as many as were tried where
  bool more_may_fit = false;  // this is set

  bool pinned = true;      // see Report
  bool too_large = false;  // for the device, whatever the budget: then `trial` does not fit
  bool compared = false;   // there was room for the gradient that trial.same_gradient is about

  double per_step(const Prediction& found) const {
    return found.seconds / static_cast<double>(time_steps);
  }
};

class DeviceTrials {
 public:
  DeviceTrials(DeviceNet net, int repeat, std::stop_token stop)
      : net_(std::move(net)), repeat_(repeat), stop_(std::move(stop)) {}

  // Without running anything: whether the plan fits the budgets. Throws Error(invalid_argument) for a net that cannot be.
  std::optional<DevicePlan> planned(const DeviceTrial& asked) const;
  // Whether the device takes such a net; its plan must fit. Throws Error(unavailable) where there is no device.
  bool runs(const DeviceTrial& asked) const;

  // Fills in the trial: once to warm up and then the best of `repeat` runs. Gradients are compared, bit for bit, with those of keeping
  // everything in memory without a limit, with the same chunk, if the device has room for that. Throws Error(cancelled) after a stop and
  // what DeviceNetwork throws, but for budgets that do not fit and memory that runs out.
  void run(DeviceTrial& trial);

  // Keeping everything in memory without a limit, with a chunk that is chosen: its plan, and measured when it is first asked for, if the
  // device has room for it.
  DevicePlan plan_of_plain(std::int64_t time_steps, std::int64_t hidden) const;
  const DeviceTrial& plain(std::int64_t time_steps, std::int64_t hidden);

 private:
  DeviceNetworkOptions options_of(const DeviceTrial& asked) const;
  // Returns the gradient.
  std::vector<float> measure(DeviceTrial& trial);
  void compare(DeviceTrial& trial, const std::vector<float>& gradient);
  const std::vector<float>& reference(const DeviceTrial& like);

  DeviceNet net_;
  int repeat_;
  std::stop_token stop_;
  std::map<std::pair<std::int64_t, std::int64_t>, DeviceTrial> plain_;
  // The last one: those of one length and size come one after the other.
  std::optional<DeviceTrial> reference_of_;
  std::vector<float> reference_;
};

// Of a time step, against another trial's: what was predicted and what was measured. Not a number where the other was not run.
void set_ratios(DeviceTrial& trial, const DeviceTrial& against);

}  // namespace ebb
