// SPDX-License-Identifier: Apache-2.0
// The format: Microsoft and IBM, "Multimedia Programming Interface and Data Specifications 1.0".
#include "ebb/data/read_wav.h"

#include <algorithm>

#include "ebb/data/byte_reader.h"

namespace ebb {
namespace {

constexpr int kPcm = 1;

std::int64_t rate_of(ByteReader format) {
  const int kind = format.little<std::uint16_t>();
  const int channels = format.little<std::uint16_t>();
  const std::int64_t rate = format.little<std::uint32_t>();
  format.take(6);
  const int bits = format.little<std::uint16_t>();
  if (kind != kPcm || channels != 1 || bits != 16) {
    format.refuse("format ", kind, " with ", channels, " channels of ", bits,
                  " bits; only PCM (format 1) with one channel of 16 bits is read");
  }
  if (rate == 0) format.refuse("0 samples per second");
  return rate;
}

std::vector<std::int16_t> samples_of(ByteReader data) {
  if (data.left() % 2 != 0) data.refuse("its samples end in the middle of one");
  std::vector<std::int16_t> samples(data.left() / 2);
  for (std::int16_t& sample : samples) {
    sample = static_cast<std::int16_t>(data.little<std::uint16_t>());
  }
  return samples;
}

}  // namespace

Recording read_wav(std::span<const std::byte> bytes, std::string_view name) {
  ByteReader reader(bytes, name);
  const std::string_view riff = reader.text(4);
  reader.take(4);
  if (riff != "RIFF" || reader.text(4) != "WAVE") reader.refuse("not a RIFF file of type WAVE");
  Recording recording;
  while (reader.left() > 0) {
    const std::string_view chunk = reader.text(4);
    const std::size_t size = reader.little<std::uint32_t>();
    const ByteReader content(reader.take(size), name);
    reader.take(std::min(size % 2, reader.left()));
    if (chunk == "fmt ") recording.rate = rate_of(content);
    if (chunk != "data") continue;
    if (recording.rate == 0) reader.refuse("its samples come before their format");
    recording.samples = samples_of(content);
    return recording;
  }
  reader.refuse("there are no samples in it");
}

}  // namespace ebb
