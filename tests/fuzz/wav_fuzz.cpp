// SPDX-License-Identifier: Apache-2.0
// .wav files: any bytes are read or refused with an Error; there are no more samples than bytes for
// them.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "ebb/core/error.h"
#include "ebb/data/read_wav.h"

// NOLINTNEXTLINE(readability-identifier-naming): the name libFuzzer calls
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  try {
    const ebb::Recording recording = ebb::read_wav(bytes, "file");
    if (recording.rate < 1 || recording.samples.size() > size / 2) std::abort();
  } catch (const ebb::Error&) {
  }
  return 0;
}
