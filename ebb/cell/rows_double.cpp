// SPDX-License-Identifier: Apache-2.0
#include "ebb/cell/row_loops.h"

namespace ebb {

template <>
CellLoops<double> loops_of<double>(std::size_t cell) {
  return loops_at<double>(cell);
}

}  // namespace ebb
