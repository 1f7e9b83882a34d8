// SPDX-License-Identifier: Apache-2.0
// How much a test of very many cases tries: everything where EBB_EXAMPLES is "all", as in
// ./dev test all, and otherwise, or where a sanitizer watches, a share.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace ebb::test {

inline bool thorough() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return false;
#else
  const char* const examples = std::getenv("EBB_EXAMPLES");
  return examples != nullptr && std::string_view(examples) == "all";
#endif
}

// Of `all` cases.
inline int share_of(int all) { return thorough() ? all : std::max(1, all / 8); }

}  // namespace ebb::test
