// SPDX-License-Identifier: Apache-2.0
// The words of `ebb bench async`, as they are given.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ebb/cli/bench_output.h"

namespace ebb {

struct AsyncWords {
  std::optional<std::string> device, state, sweeps, steps, interval, vary_sweeps, budget, repeat;
  std::optional<std::string> number, input, hidden, batch, chunks, host_budget;  // of a GPU
  std::vector<std::string> tiers;
  bool quick = false;
  BenchOutput output;
};

}  // namespace ebb
