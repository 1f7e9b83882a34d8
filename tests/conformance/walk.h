// SPDX-License-Identifier: Apache-2.0
// One run of a Step and everything that it left.
#pragma once

#include <string>
#include <vector>

#include "ebb/run/run.h"
#include "tests/conformance/steps.h"
#include "tests/temporary_folder.h"

namespace ebb::test {

struct Results {
  std::vector<std::byte> final, initial_adjoint;
  std::vector<std::vector<std::byte>> gradients;
  std::vector<double> outputs;
  friend bool operator==(const Results&, const Results&) = default;
};

// What went wrong in the test's own environment is no result: it throws what the run throws.
inline Results results_of(Run& run, TestStep& step) {
  Results results;
  const std::vector<std::byte> initial = step.initial();
  results.final.resize(static_cast<std::size_t>(step.final_bytes()));
  results.initial_adjoint.resize(initial.size());
  std::vector<std::byte> adjoint(results.final.size());
  // Numbers of about 1, as bits of float and of double alike.
  for (std::size_t i = 0; i + 4 <= adjoint.size(); i += 4) {
    adjoint[i + 3] = std::byte{0x3F};
    adjoint[i + 2] = std::byte{0x80} | static_cast<std::byte>(i % 64);
  }
  run.forward(std::span<const std::byte>(initial), std::span(results.final));
  run.backward(std::span<const std::byte>(adjoint), std::span(results.initial_adjoint));
  for (const Field& field : step.gradients()) {
    results.gradients.emplace_back(field.bytes.begin(), field.bytes.end());
  }
  results.outputs = step.outputs();
  return results;
}

// Costs that no stopwatch took: plans are the same each time.
inline Chain seconds_of(std::int64_t steps) {
  return Chain::uniform(steps, {.forward = 1e-6, .record = 1.2e-6, .backward = 2e-6}, 1e-7);
}
inline Platform speeds_of(const std::vector<SlowTier>& tiers) {
  Platform platform;
  double rate = 4e9;
  for (const SlowTier& tier : tiers) {
    platform.tiers.push_back({.name = tier.name,
                              .capacity = tier.capacity,
                              .write_rate = rate,
                              .read_rate = rate,
                              .write_latency = 1e-6,
                              .read_latency = 1e-6});
    rate /= 4;
  }
  return platform;
}

inline RunOptions planned(const TestStep& step, std::vector<SlowTier> tiers = {}) {
  RunOptions options;
  options.platform = speeds_of(tiers);
  options.tiers = std::move(tiers);
  options.chain = seconds_of(std::max<std::int64_t>(0, step.steps()));
  // Real speeds are not the plan's.
  options.replan_factor = 0;
  return options;
}

inline Results stored_all(TestStep& step) {
  RunOptions options = planned(step);
  options.strategy = "store_all";
  Run run(step, options);
  return results_of(run, step);
}

}  // namespace ebb::test
