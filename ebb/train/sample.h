// SPDX-License-Identifier: Apache-2.0
// Text that a net trained on text goes on with.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "ebb/train/trained.h"

namespace ebb {

struct SampleOptions {
  std::string text = {};      // that it goes on from; empty: as after the end of a line
  std::int64_t length = 500;  // bytes to add
  double temperature = 1;     // of the draw; 0: always the likeliest
  std::uint64_t seed = 1;
  int threads = 0;  // 0: the run's
  std::stop_token stop = {};
};

// Hands the new bytes to `sink`, one after the other; the same for the same seed. Throws
// Error(invalid_argument) for a net that was not trained on text, a text with bytes that its training
// did not have, and a temperature below 0; Error(cancelled).
void sample(const TrainedModel& model, const SampleOptions& options,
            const std::function<void(char)>& sink);

}  // namespace ebb
