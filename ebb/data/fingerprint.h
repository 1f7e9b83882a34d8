// SPDX-License-Identifier: Apache-2.0
// What tells that the files of a task are others than they were.
#pragma once

#include <cstdint>

#include "ebb/core/bytes.h"

namespace ebb {

// Of the files' contents, and of their names where they lie in a folder, in the order of reading. Of a file
// beyond 256 MiB its size and 4096 pieces of 64 KiB, evenly spread, stand for the content.
struct DataFingerprint {
  std::int64_t files = 0;  // 0: the task makes its samples itself
  Bytes bytes = 0;
  std::uint32_t checksum = 0;  // crc32c

  bool operator==(const DataFingerprint&) const = default;
};

}  // namespace ebb
