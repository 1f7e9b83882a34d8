// SPDX-License-Identifier: Apache-2.0
// Sizes and rates: any text is read or refused with an Error, and what is read is in range.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "ebb/core/bytes.h"
#include "ebb/core/error.h"
#include "ebb/core/rate.h"

// NOLINTNEXTLINE(readability-identifier-naming): the name libFuzzer calls
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const ebb::Bytes bytes = ebb::parse_bytes(text);
    if (bytes < 0) std::abort();
    ebb::format_bytes(bytes);
  } catch (const ebb::Error&) {
  }
  try {
    if (!(ebb::parse_rate(text) > 0)) std::abort();
  } catch (const ebb::Error&) {
  }
  return 0;
}
