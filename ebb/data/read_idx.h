// SPDX-License-Identifier: Apache-2.0
// The idx files of MNIST and its kin. Private.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace ebb {

struct IdxArray {
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> values;  // the last index runs fastest
};

// Unsigned bytes only; `bytes` may be gzip. `name` is the file's, for messages. Throws
// Error(invalid_argument) for anything else, Error(unavailable) as inflated() does.
IdxArray read_idx(std::span<const std::byte> bytes, std::string_view name);

}  // namespace ebb
