// SPDX-License-Identifier: Apache-2.0
// How much a test of very many cases tries.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace ebb::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// As much as it can: in ./dev test all, but not where a sanitizer watches.
inline bool thorough() {
  const char* const examples = std::getenv("EBB_EXAMPLES");
  return !kSanitized && examples != nullptr && std::string_view(examples) == "all";
}

// A share: in ./dev test.
inline bool quick() { return !kSanitized && !thorough(); }

// Of `all` cases.
inline int share_of(int all) { return quick() ? std::max(1, all / 8) : all; }

}  // namespace ebb::test
