// SPDX-License-Identifier: Apache-2.0
#include "ebb/core/error.h"
#include "ebb/train/rank_link.h"

namespace ebb {

std::unique_ptr<RankLink> join_ranks(int started, double) {
  fail(ErrorCode::unavailable, started,
       " processes were started to train together, and this ebb was built without MPI; start one "
       "process, or install MPI (libopenmpi-dev) and build again");
}

}  // namespace ebb
