// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/plan.h"

#include <limits>

#include "ebb/core/error.h"

namespace ebb {

void Cursor::finish(std::int64_t n) {
  fail(ErrorCode::invalid_argument, "finish(", n,
       "): this plan knows its length; only plans of unknown length are finished");
}

double Plan::gap() const {
  if (prediction.seconds <= bound.seconds) return 0;
  return bound.seconds > 0 ? prediction.seconds / bound.seconds - 1
                           : std::numeric_limits<double>::infinity();
}

}  // namespace ebb
