// SPDX-License-Identifier: Apache-2.0
// Which outputs of a batch have a target.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "ebb/core/at.h"
#include "ebb/data/batch.h"
#include "ebb/data/task.h"

namespace ebb {

class BatchTargets {
 public:
  // The batch must outlive it.
  BatchTargets(const TaskShape& shape, std::int64_t samples, const Batch& batch)
      : shape_(shape), samples_(samples), batch_(&batch) {}

  // Whether sample b has a target at time step t of the sequence, and where it is in the batch: which of its classes or of its rows of
  // targets.
  bool has(std::int64_t t, std::int64_t b, std::size_t& place) const {
    const std::int64_t end = length(b);
    if (shape_.every_step ? t >= end : t != end - 1) return false;
    place = at(shape_.every_step ? t * samples_ + b : b);
    if (shape_.classes) return batch_->classes[place] >= 0;
    const float* const own = batch_->targets.data() + place * at(shape_.outputs);
    return std::any_of(own, own + shape_.outputs, [](float target) { return !std::isnan(target); });
  }
  // Calls with time step, sample and place of each.
  template <class Visit>
  void visit(const Visit& visit) const {
    std::size_t place = 0;
    for (std::int64_t b = 0; b < samples_; ++b) {
      const std::int64_t end = length(b);
      for (std::int64_t t = shape_.every_step ? 0 : end - 1; t < end; ++t) {
        if (has(t, b, place)) visit(t, b, place);
      }
    }
  }
  double count() const {
    double all = 0;
    visit([&](std::int64_t, std::int64_t, std::size_t) { all += 1; });
    return all;
  }

 private:
  std::int64_t length(std::int64_t sample) const {
    return batch_->lengths.empty() ? shape_.steps : batch_->lengths[at(sample)];
  }

  TaskShape shape_;
  std::int64_t samples_;
  const Batch* batch_;
};

}  // namespace ebb
