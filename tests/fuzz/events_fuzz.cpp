// SPDX-License-Identifier: Apache-2.0
// Events of a camera: any bytes are read or refused with an Error; what is read lies in the picture.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "ebb/core/error.h"
#include "ebb/data/read_events.h"

// NOLINTNEXTLINE(readability-identifier-naming): the name libFuzzer calls
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  try {
    for (const ebb::CameraEvent& event : ebb::read_events(bytes, "file", 34, 34)) {
      if (event.x >= 34 || event.y >= 34 || event.polarity > 1) std::abort();
      if (event.microseconds >= 1U << 23) std::abort();
    }
  } catch (const ebb::Error&) {
  }
  return 0;
}
