// SPDX-License-Identifier: Apache-2.0
// Sequences to learn from, side by side, and what they should give.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ebb/core/bits.h"
#include "ebb/core/vector_bytes.h"

namespace ebb {

// T steps, B samples, I inputs, O outputs, as in the task's shape. One of `values` and `spikes`, and
// one of `classes` and `targets` is filled; the others are empty.
struct Batch {
  std::vector<float> values;          // [T,B,I]
  std::vector<std::uint64_t> spikes;  // [T,B,words_of(I)], input i is bit i % 64 of word i / 64
  std::vector<std::int64_t> lengths;  // [B], 1 to T each; empty: all T
  std::vector<std::int32_t> classes;  // [B] or, for losses at every step, [T,B]; -1: does not count
  std::vector<float> targets;         // [B,O] or [T,B,O]; a NaN does not count

  Bytes bytes() const {
    return vector_bytes(values) + vector_bytes(spikes) + vector_bytes(lengths) +
           vector_bytes(classes) + vector_bytes(targets);
  }
};

}  // namespace ebb
