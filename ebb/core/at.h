// SPDX-License-Identifier: Apache-2.0
// Counts are signed, the standard library's indices are not.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ebb {

// Which element of a container; 0 or more.
constexpr std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace ebb
