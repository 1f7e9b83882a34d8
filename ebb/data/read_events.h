// SPDX-License-Identifier: Apache-2.0
// Recordings of an event camera, as N-MNIST has them. Private.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace ebb {

struct CameraEvent {
  std::uint32_t microseconds = 0;  // below 2^23
  std::uint8_t x = 0;
  std::uint8_t y = 0;
  std::uint8_t polarity = 0;  // 0 or 1

  bool operator==(const CameraEvent&) const = default;
};

// Five bytes each: x, y, then a bit of polarity and 23 of time, big-endian. `name` is the file's,
// for messages. Throws Error(invalid_argument) for a part of an event or one outside of the picture.
std::vector<CameraEvent> read_events(std::span<const std::byte> bytes, std::string_view name,
                                     int width, int height);

}  // namespace ebb
