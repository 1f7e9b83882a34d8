// SPDX-License-Identifier: Apache-2.0
// The experiment of Gruslys, Munos, Danihelka, Lanctot and Graves (2016) on a GPU: what the gradient of an lstm costs in a part of the
// memory that keeping everything needs, and how that grows with the length. What is printed is left to others.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "ebb/experiments/device_trials.h"

namespace ebb {

struct DeviceGruslysSetup {
  std::string number = "bf16";
  std::int64_t input = 64, hidden = 512, batch = 64;
  std::int64_t steps = 4096;          // time steps of the first series
  std::int64_t chunk = 0;             // 0: chosen for each trial
  std::vector<std::int64_t> memory;   // of the first series: percents of plain memory
  std::vector<std::int64_t> lengths;  // of the second series: time steps
  std::vector<std::int64_t> budgets;  // of the second series: percents, as above
  int repeat = 5;
  std::stop_token stop = {};
  // What is done now, and how much of all: 0 to 1.
  std::function<void(const std::string&, double)> progress = {};
};

struct DeviceGruslysResults {
  std::string device;
  std::int64_t parameters = 0;
  Bytes plain = 0;  // keeping everything, at DeviceGruslysSetup::steps
  // Series "memory": plain, auto in each part of memory. Series "steps": for each length plain, auto in each budget. Ratios are to plain
  // over the same time steps.
  std::vector<DeviceTrial> trials;
};

// Throws as run_device_double_bench does.
DeviceGruslysResults run_device_gruslys_bench(const DeviceGruslysSetup& setup);

}  // namespace ebb
