// SPDX-License-Identifier: Apache-2.0
#include "ebb/data/sampler.h"

#include <limits>
#include <numeric>
#include <utility>

#include "ebb/core/error.h"
#include "ebb/core/random.h"
#include "ebb/data/task.h"

namespace ebb {
namespace {

constexpr std::uint64_t kStream = 0x6f72646572;  // "order", apart from other users of the seed
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

void check(std::int64_t iteration, std::int64_t batch, std::int64_t rank, std::int64_t ranks) {
  if (iteration < 0 || batch < 1 || ranks < 1 || rank < 0 || rank >= ranks ||
      batch > kMost / ranks) {
    fail(ErrorCode::invalid_argument, "sampler: iteration ", iteration, ", batch ", batch,
         ", rank ", rank, " of ", ranks,
         "; iterations begin at 0, batches at 1, ranks are below their number");
  }
}

}  // namespace

Sampler::Sampler(std::int64_t samples, std::uint64_t seed) : samples_(samples), seed_(seed) {
  if (samples < 1 && samples != Task::kEndless) {
    fail(ErrorCode::invalid_argument, "sampler: ", samples, " samples; there must be at least 1");
  }
}

std::vector<std::int64_t> Sampler::batch(std::int64_t iteration, std::int64_t batch,
                                         std::int64_t rank, std::int64_t ranks) {
  check(iteration, batch, rank, ranks);
  const std::int64_t together = batch * ranks;
  const bool endless = samples_ == Task::kEndless;
  if (endless ? iteration >= kMost / together : together > samples_) {
    fail(ErrorCode::invalid_argument, "sampler: iteration ", iteration, " takes ", together,
         " samples, ", ranks, " x ", batch, "; there are ", endless ? kMost : samples_,
         "; take a smaller batch");
  }
  const std::int64_t iterations = endless ? kMost : samples_ / together;
  const std::int64_t first = iteration % iterations * together + rank * batch;
  std::vector<std::int64_t> taken(static_cast<std::size_t>(batch));
  std::iota(taken.begin(), taken.end(), first);
  if (endless) return taken;
  shuffle(iteration / iterations);
  for (std::int64_t& sample : taken) sample = order_[static_cast<std::size_t>(sample)];
  return taken;
}

// Fisher and Yates, from the samples in order, so that no epoch depends on those before it.
void Sampler::shuffle(std::int64_t epoch) {
  if (epoch == epoch_) return;
  order_.resize(static_cast<std::size_t>(samples_));
  std::iota(order_.begin(), order_.end(), std::int64_t{0});
  const Random random(seed_, kStream, static_cast<std::uint64_t>(epoch));
  for (std::size_t i = order_.size(); i-- > 1;) {
    std::swap(order_[i], order_[random.below(i, i + 1)]);
  }
  epoch_ = epoch;
}

}  // namespace ebb
