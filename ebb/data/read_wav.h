// SPDX-License-Identifier: Apache-2.0
// Recordings in .wav files. Private.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace ebb {

struct Recording {
  std::int64_t rate = 0;  // samples per second
  std::vector<std::int16_t> samples;
};

// RIFF with one channel of 16-bit PCM. `name` is the file's, for messages. Throws
// Error(invalid_argument) for anything else.
Recording read_wav(std::span<const std::byte> bytes, std::string_view name);

}  // namespace ebb
