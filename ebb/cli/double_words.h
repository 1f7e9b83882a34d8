// SPDX-License-Identifier: Apache-2.0
// The words of `ebb bench double`, as they are given.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ebb/cli/bench_output.h"

namespace ebb {

// The most that it takes: times the time steps of plain, times the usual weights.
inline constexpr std::int64_t kMostLonger = 10'000, kMostWeightScale = 1'000'000;

struct DoubleWords {
  std::optional<std::string> device, input, hidden, batch, density, rate, scale, chunk, threads,
      budget, steps, longer, rates, repeat;
  std::optional<std::string> cell, number, host_budget;  // of a GPU
  std::vector<std::string> tiers;
  bool quick = false;
  BenchOutput output;
};

}  // namespace ebb
