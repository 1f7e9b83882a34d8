// SPDX-License-Identifier: Apache-2.0
// The format: Orchard et al. 2015, "Converting static image datasets to spiking neuromorphic
// datasets using saccades".
#include "ebb/data/read_events.h"

#include "ebb/data/byte_reader.h"

namespace ebb {

std::vector<CameraEvent> read_events(std::span<const std::byte> bytes, std::string_view name,
                                     int width, int height) {
  ByteReader reader(bytes, name);
  if (bytes.size() % 5 != 0) {
    reader.refuse(bytes.size(), " bytes; events have 5 each, so that one is not whole");
  }
  std::vector<CameraEvent> events(bytes.size() / 5);
  for (CameraEvent& event : events) {
    event.x = reader.big<std::uint8_t>();
    event.y = reader.big<std::uint8_t>();
    const auto high = reader.big<std::uint8_t>();
    event.polarity = high >> 7;
    event.microseconds =
        (std::uint32_t{high} & 0x7f) << 16 | std::uint32_t{reader.big<std::uint16_t>()};
    if (event.x >= width || event.y >= height) {
      reader.refuse("the event before byte ", reader.at(), " is at (", int{event.x}, ",",
                    int{event.y}, "); the picture has ", width, "x", height, " places");
    }
  }
  return events;
}

}  // namespace ebb
