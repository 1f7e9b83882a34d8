// SPDX-License-Identifier: Apache-2.0
// The experiment of Kukreja, Hückelheim and Gorman (2018) on a GPU: states of an lstm go to pinned memory of the host behind the
// computation, in a part of the device's memory that stays the same, against keeping everything there. What is printed is left to others.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "ebb/experiments/device_trials.h"

namespace ebb {

struct DeviceAsyncSetup {
  std::string number = "bf16";
  std::int64_t input = 64, hidden = 512, batch = 64;
  Bytes budget = 32_MiB, host_budget = 0;  // of the device's memory and of the host's
  std::vector<std::int64_t> steps;         // time steps of the first series; the last of the second
  std::int64_t chunk = 0;                  // of the first series; 0: chosen for each trial
  std::vector<std::int64_t> chunks;        // of the second series
  int repeat = 5;
  std::stop_token stop = {};
  // What is done now, and how much of all: 0 to 1.
  std::function<void(const std::string&, double)> progress = {};
};

struct DeviceAsyncResults {
  std::string device;
  std::int64_t parameters = 0;
  // Ratios are to plain over the same time steps, everything in the device's memory. Series "steps": for each length plain, then
  // async, then single_local with its chunk and without a limit (most steps run forward twice, as async's do, and nothing is moved), then
  // revolve, in the device's memory alone, and auto. Series "chunk": async with each chunk.
  std::vector<DeviceTrial> trials;
};

// Throws as run_device_double_bench does.
DeviceAsyncResults run_device_async_bench(const DeviceAsyncSetup& setup);

}  // namespace ebb
