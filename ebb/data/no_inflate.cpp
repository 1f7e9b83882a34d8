// SPDX-License-Identifier: Apache-2.0
#include "ebb/core/error.h"
#include "ebb/data/inflate.h"

namespace ebb {

std::vector<std::byte> inflated(std::span<const std::byte>, std::string_view name, std::size_t) {
  fail(ErrorCode::unavailable, name,
       ": compressed, and this build of ebb has no zlib; install zlib1g-dev and build again, or "
       "give it uncompressed (gunzip; save -v6 in MATLAB)");
}

}  // namespace ebb
