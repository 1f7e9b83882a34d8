// SPDX-License-Identifier: Apache-2.0
// A trained net that runs forward only, over sequences of any length, a block of time steps at a time:
// what it takes does not depend on how long they are. Private.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ebb/device/buffer.h"
#include "ebb/run/network.h"
#include "ebb/train/trained.h"

namespace ebb {

template <class Number>
class Forward {
 public:
  // threads: 0: the run's own. Throws Error(invalid_argument) if the model's parts do not fit together.
  Forward(const TrainedModel& model, std::int64_t batch, std::int64_t block, int threads);

  // For inputs, outputs and losses; its time step 0 is first() of
  // the sequences.
  Network<Number>& network() { return network_; }
  std::int64_t block() const { return network_.time_steps(); }
  // New sequences begin, [B] of that many time steps.
  void start(std::span<const std::int64_t> lengths);
  // The time step that the block to come, or at work, begins with.
  std::int64_t first() const { return first_; }
  // Runs the next block; a sequence that ends within it is left as it is after its end.
  void advance();

 private:
  Network<Number> network_;
  Buffer state_, scratch_;
  std::vector<std::int64_t> lengths_, here_;
  std::int64_t first_ = 0;
};

}  // namespace ebb
