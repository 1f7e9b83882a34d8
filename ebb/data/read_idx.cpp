// SPDX-License-Identifier: Apache-2.0
#include "ebb/data/read_idx.h"

#include <algorithm>

#include "ebb/data/byte_reader.h"
#include "ebb/data/inflate.h"
#include "ebb/data/number_array.h"

namespace ebb {
namespace {

constexpr std::uint8_t kUnsignedBytes = 0x08;

IdxArray read_plain(std::span<const std::byte> bytes, std::string_view name) {
  ByteReader reader(bytes, name);
  if (reader.big<std::uint16_t>() != 0) {
    reader.refuse("not an idx file: it should begin with two zero bytes");
  }
  const auto type = reader.big<std::uint8_t>();
  if (type != kUnsignedBytes) {
    reader.refuse("an idx file of type ", int{type}, "; only unsigned bytes, type 8, are read");
  }
  IdxArray array;
  array.shape.resize(reader.big<std::uint8_t>());
  if (array.shape.empty()) reader.refuse("an idx file without dimensions");
  for (std::int64_t& size : array.shape) size = reader.big<std::uint32_t>();
  if (count_within(array.shape, reader.left()) != reader.left()) {
    reader.refuse("its header says ", shape_text(array.shape), " bytes, ", reader.left(),
                  " follow it");
  }
  array.values.resize(reader.left());
  std::ranges::transform(reader.take(reader.left()), array.values.begin(),
                         std::to_integer<std::uint8_t>);
  return array;
}

}  // namespace

IdxArray read_idx(std::span<const std::byte> bytes, std::string_view name) {
  return is_gzip(bytes) ? read_plain(inflated(bytes, name), name) : read_plain(bytes, name);
}

}  // namespace ebb
