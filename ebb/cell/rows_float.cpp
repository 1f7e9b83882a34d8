// SPDX-License-Identifier: Apache-2.0
#include "ebb/cell/row_loops.h"

namespace ebb {

template <>
CellLoops<float> loops_of<float>(std::size_t cell) {
  return loops_at<float>(cell);
}

}  // namespace ebb
