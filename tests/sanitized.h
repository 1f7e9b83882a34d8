// SPDX-License-Identifier: Apache-2.0
// Whether a sanitizer watches: tests of thousands of cases take a share of them then.
#pragma once

namespace ebb::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace ebb::test
