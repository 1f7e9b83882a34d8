// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ebb {

// "major.minor.patch", as in CMake's project().
const char* version() noexcept;

}  // namespace ebb
