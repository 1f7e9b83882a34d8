// SPDX-License-Identifier: Apache-2.0
// Stands in for file_tier_uring.cpp where liburing is not installed.
#include "ebb/store/file.h"

namespace ebb {

std::unique_ptr<FileMover> uring_mover(int) { return nullptr; }

}  // namespace ebb
