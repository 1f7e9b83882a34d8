// SPDX-License-Identifier: Apache-2.0
// A net for experiments: inputs and the gradient of its outputs are made up as they are asked for, so
// that nothing of the sequence's length is in memory.
#pragma once

#include <cstdint>
#include <vector>

#include "ebb/run/network.h"

namespace ebb {

// The most that commands take.
inline constexpr std::int64_t kMostUnits = 65'536, kMostBatch = 65'535, kMostSteps = 10'000'000;

class BenchNet {
 public:
  // Inputs are numbers from -1 to 1 or, with options.input_spikes, spikes of that rate: 0 to 1.
  explicit BenchNet(const NetworkOptions& options, double rate = 0);
  BenchNet(const BenchNet&) = delete;
  BenchNet& operator=(const BenchNet&) = delete;

  Network<float>& net() { return net_; }
  std::int64_t parameters() { return static_cast<std::int64_t>(net_.values().size()); }

 private:
  void give_numbers();
  void give_spikes(double rate);

  Network<float> net_;
  std::vector<float> numbers_, of_output_;
  std::vector<std::uint64_t> spikes_;
};

}  // namespace ebb
