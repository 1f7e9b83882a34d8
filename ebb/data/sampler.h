// SPDX-License-Identifier: Apache-2.0
// Which samples each iteration of training takes.
#pragma once

#include <cstdint>
#include <vector>

namespace ebb {

// A function of the iteration alone: whoever goes on later, or starts anew, gets the same samples.
// Endless tasks bring new ones for ever. Others are shuffled for each epoch, none is taken twice in
// one, and what does not fill a batch at its end is left out. Not for several threads at a time.
class Sampler {
 public:
  // `samples` as Task::samples(). Throws Error(invalid_argument) for 0.
  Sampler(std::int64_t samples, std::uint64_t seed);

  // The share of one of `ranks` processes, `batch` samples each: all shares, in the order of the
  // ranks, are what one process would take with a batch of ranks * batch. Costs O(batch) and, at the
  // first of an epoch, O(samples). Throws Error(invalid_argument) if an iteration takes more samples
  // than there are.
  std::vector<std::int64_t> batch(std::int64_t iteration, std::int64_t batch, std::int64_t rank = 0,
                                  std::int64_t ranks = 1);

 private:
  void shuffle(std::int64_t epoch);

  std::int64_t samples_;
  std::uint64_t seed_;
  std::int64_t epoch_ = -1;  // that `order_` is for
  std::vector<std::int64_t> order_;
};

}  // namespace ebb
