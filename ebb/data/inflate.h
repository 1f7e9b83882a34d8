// SPDX-License-Identifier: Apache-2.0
// Decompression of gzip files and zlib streams. Private.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace ebb {

// More bytes than that are taken for damage or malice.
inline constexpr std::size_t kMostInflated = std::size_t{1} << 30;

inline bool is_gzip(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b};
}

// What was compressed: gzip, of one or several members, or one zlib stream, and nothing after it.
// `name` is the file's, for messages. Throws Error(invalid_argument) for bytes that are damaged or
// become more than `most`, Error(unavailable) in a build without zlib.
std::vector<std::byte> inflated(std::span<const std::byte> bytes, std::string_view name,
                                std::size_t most = kMostInflated);

}  // namespace ebb
