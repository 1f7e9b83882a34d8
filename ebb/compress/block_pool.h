// SPDX-License-Identifier: Apache-2.0
// One number for each block of neighbours of a map: its mean or its largest.
#pragma once

#include <array>
#include <cstdint>

#include "ebb/core/workers.h"

namespace ebb {

enum class Pooling { average, max };

struct PoolAxis {
  std::int64_t in = 1, block = 1;
  std::int64_t blocks() const { return (in + block - 1) / block; }
};

// x[planes, in...] to pooled[planes, blocks()...], outermost axis first; fewer than three leave the
// first ones as they are. Blocks at the border have their true count. A NaN makes its block NaN.
// Takes no memory. Throws Error(invalid_argument) for a size below 1.
template <class Number>
void pool_blocks(Workers& workers, std::int64_t planes, const std::array<PoolAxis, 3>& axes,
                 Pooling kind, const Number* x, Number* pooled);

}  // namespace ebb
