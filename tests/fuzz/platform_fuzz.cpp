// SPDX-License-Identifier: Apache-2.0
// Platform files: any text is read or refused with an Error; what is read survives being written
// and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "ebb/core/error.h"
#include "ebb/plan/text.h"

// NOLINTNEXTLINE(readability-identifier-naming): the name libFuzzer calls
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const ebb::Platform platform =
        ebb::platform_from_json({reinterpret_cast<const char*>(data), size});
    if (ebb::platform_from_json(ebb::to_json(platform)) != platform) std::abort();
  } catch (const ebb::Error&) {
  }
  return 0;
}
