// SPDX-License-Identifier: Apache-2.0
// idx files, plain or gzip: any bytes are read or refused with an Error, and what is read has as many
// values as its shape says.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "ebb/core/error.h"
#include "ebb/data/read_idx.h"

// NOLINTNEXTLINE(readability-identifier-naming): the name libFuzzer calls
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  try {
    const ebb::IdxArray array = ebb::read_idx(bytes, "file");
    std::size_t count = 1;
    for (const std::int64_t n : array.shape) count *= static_cast<std::size_t>(n);
    if (array.shape.empty() || count != array.values.size()) std::abort();
  } catch (const ebb::Error&) {
  }
  return 0;
}
