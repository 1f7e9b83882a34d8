// SPDX-License-Identifier: Apache-2.0
// How test samples are taken batch by batch and what is said of them, in training and after it.
// Private.
#pragma once

#include <cstdint>

#include "ebb/data/task.h"
#include "ebb/train/batch_loss.h"
#include "ebb/train/metrics.h"

namespace ebb {

// Samples [from,end) of the split, at most `size` of them. Where they end within the batch the rest of
// it is the first sample without its target.
void fill_tested(const Task& task, Split split, std::int64_t from, std::int64_t end,
                 std::int64_t size, Batch& batch);

Metrics metrics_of(const TaskShape& shape, std::int64_t iteration, Split split, const Score& score,
                   double seconds);

}  // namespace ebb
