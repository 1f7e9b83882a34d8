// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/tested.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "ebb/core/at.h"

namespace ebb {

void fill_tested(const Task& task, Split split, std::int64_t from, std::int64_t end,
                 std::int64_t size, Batch& batch) {
  std::vector<std::int64_t> these(at(size), 0);
  const std::int64_t here = std::clamp<std::int64_t>(end - from, 0, size);
  std::iota(these.begin(), these.begin() + here, from);
  task.fill(split, these, batch);
  const TaskShape shape = task.shape();
  const std::int64_t times = shape.every_step ? shape.steps : 1;
  for (std::int64_t t = 0; t < times; ++t) {
    for (std::int64_t b = here; b < size; ++b) {
      if (shape.classes) {
        batch.classes[at(t * size + b)] = -1;
      } else {
        std::fill_n(batch.targets.begin() + (t * size + b) * shape.outputs, shape.outputs,
                    std::numeric_limits<float>::quiet_NaN());
      }
    }
  }
}

Metrics metrics_of(const TaskShape& shape, std::int64_t iteration, Split split, const Score& score,
                   double seconds) {
  Metrics metrics;
  metrics.iteration = iteration;
  metrics.split = split;
  metrics.loss = score.loss / score.targets;
  if (shape.classes) {
    metrics.metric = "accuracy";
    metrics.value = score.correct / score.targets;
  }
  metrics.seconds = seconds;
  return metrics;
}

}  // namespace ebb
