// SPDX-License-Identifier: Apache-2.0
// CRC32C (Castagnoli), by the CPU's own instruction where it has one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ebb {

// Of the bytes after those that gave `before`; crc32c("123456789") is 0xE3069283.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);

// The same by table alone, for machines without the instruction and as its check.
std::uint32_t crc32c_plain(std::span<const std::byte> bytes, std::uint32_t before = 0);

}  // namespace ebb
