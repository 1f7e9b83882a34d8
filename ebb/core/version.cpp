// SPDX-License-Identifier: Apache-2.0
#include "ebb/core/version.h"

namespace ebb {

const char* version() noexcept { return EBB_VERSION; }

}  // namespace ebb
