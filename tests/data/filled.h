// SPDX-License-Identifier: Apache-2.0
// Batches of tasks, and what is in them.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <vector>

#include "ebb/data/task.h"

namespace ebb::test {

inline Batch filled(const Task& task, Split split, const std::vector<std::int64_t>& samples) {
  Batch batch;
  task.fill(split, samples, batch);
  return batch;
}

// Inputs that fire in step t of the batch's sample b.
inline std::vector<std::int64_t> firing(const Batch& batch, const TaskShape& shape,
                                        std::int64_t samples, std::int64_t t, std::int64_t b) {
  std::vector<std::int64_t> inputs;
  const std::int64_t words = words_of(shape.inputs);
  for (std::int64_t i = 0; i < words * 64; ++i) {
    const std::uint64_t word =
        batch.spikes.at(static_cast<std::size_t>((t * samples + b) * words + i / 64));
    if ((word >> (i % 64) & 1) != 0) inputs.push_back(i);
  }
  return inputs;
}

inline bool same(const Batch& one, const Batch& other) {
  return one.values == other.values && one.spikes == other.spikes && one.lengths == other.lengths &&
         one.classes == other.classes && one.targets == other.targets;
}

}  // namespace ebb::test
