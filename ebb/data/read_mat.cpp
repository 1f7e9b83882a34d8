// SPDX-License-Identifier: Apache-2.0
// The format: MathWorks, "MAT-File Format", level 5.
#include "ebb/data/read_mat.h"

#include <algorithm>

#include "ebb/data/byte_reader.h"
#include "ebb/data/inflate.h"

namespace ebb {
namespace {

constexpr std::uint32_t kInt8 = 1;
constexpr std::uint32_t kInt32 = 5;
constexpr std::uint32_t kUint32 = 6;
constexpr std::uint32_t kMatrix = 14;
constexpr std::uint32_t kCompressed = 15;
constexpr std::uint8_t kDouble = 6;   // classes from here
constexpr std::uint8_t kUint64 = 15;  // to here are full arrays of numbers
constexpr std::uint32_t kComplex = 0x0800;

struct MatElement {
  std::uint32_t type = 0;
  std::span<const std::byte> bytes;
};

MatElement take_element(ByteReader& reader) {
  const auto head = reader.little<std::uint32_t>();
  if (head >> 16 != 0) {
    // The short form: type, size and up to four bytes in eight.
    const std::size_t size = head >> 16;
    if (size > 4) reader.refuse("a short element says ", size, " bytes; at most 4 fit");
    return {head & 0xffff, reader.take(4).first(size)};
  }
  const std::size_t size = reader.little<std::uint32_t>();
  const MatElement element{head, reader.take(size)};
  // Compressed ones are not padded, and the last one may not be.
  if (head != kCompressed) reader.take(std::min((8 - size % 8) % 8, reader.left()));
  return element;
}

MatElement take_element(ByteReader& reader, std::uint32_t type, const char* what) {
  const MatElement element = take_element(reader);
  if (element.type != type) {
    reader.refuse("the ", what, " of a variable have type ", element.type, " instead of ", type);
  }
  return element;
}

std::optional<NumberType> number_type(std::uint32_t type) {
  switch (type) {
    case 1:
      return NumberType::i8;
    case 2:
      return NumberType::u8;
    case 3:
      return NumberType::i16;
    case 4:
      return NumberType::u16;
    case 5:
      return NumberType::i32;
    case 6:
      return NumberType::u32;
    case 7:
      return NumberType::f32;
    case 9:
      return NumberType::f64;
    case 12:
      return NumberType::i64;
    case 13:
      return NumberType::u64;
    default:
      return {};
  }
}

void check_header(ByteReader& reader) {
  if (reader.text(4) == "\x89HDF") reader.refuse("an HDF5 file; save it with -v7 in MATLAB");
  reader.take(120);
  const auto version = reader.little<std::uint16_t>();
  const std::string_view order = reader.text(2);
  if (order == "MI") reader.refuse("a big-endian MATLAB file; only little-endian ones are read");
  if (order != "IM") reader.refuse("not a MATLAB file of version 5");
  if (version == 0x0200) reader.refuse("a MATLAB 7.3 file (HDF5); save it with -v7 in MATLAB");
  if (version != 0x0100) reader.refuse("a MATLAB file of version ", version, " instead of 256");
}

std::vector<std::int64_t> take_shape(ByteReader& reader) {
  const MatElement sizes = take_element(reader, kInt32, "sizes");
  ByteReader each(sizes.bytes, reader.name());
  std::vector<std::int64_t> shape;
  while (each.left() > 0) {
    shape.push_back(static_cast<std::int32_t>(each.little<std::uint32_t>()));
  }
  return shape;
}

// The variable, if its name is the one that is sought.
std::optional<NumberArray> matrix(std::span<const std::byte> bytes, std::string_view name,
                                  std::string_view variable) {
  if (bytes.empty()) return {};
  ByteReader reader(bytes, name);
  const MatElement flags = take_element(reader, kUint32, "flags");
  const auto flag = ByteReader(flags.bytes, name).little<std::uint32_t>();
  NumberArray array;
  array.shape = take_shape(reader);
  const MatElement own = take_element(reader, kInt8, "letters of the name");
  if (ByteReader(own.bytes, name).text(own.bytes.size()) != variable) return {};

  const auto kind = static_cast<std::uint8_t>(flag);
  if (kind < kDouble || kind > kUint64) {
    reader.refuse("variable ", variable, " has class ", int{kind},
                  "; only full arrays of numbers, classes 6 to 15, are read");
  }
  if ((flag & kComplex) != 0) reader.refuse("variable ", variable, " is complex");
  const MatElement numbers = take_element(reader);
  const std::optional<NumberType> type = number_type(numbers.type);
  if (!type) reader.refuse("variable ", variable, ": its numbers have type ", numbers.type);
  array.type = *type;
  const std::size_t size = bytes_of(array.type);
  const std::size_t there = numbers.bytes.size() / size;
  if (numbers.bytes.size() % size != 0 || count_within(array.shape, there) != there) {
    reader.refuse("variable ", variable, " of ", shape_text(array.shape), " numbers of ", size,
                  " bytes has ", numbers.bytes.size(), " bytes");
  }
  array.strides = strides_of(array.shape, true);
  auto held =
      std::make_shared<const std::vector<std::byte>>(numbers.bytes.begin(), numbers.bytes.end());
  array.data = *held;
  array.held = std::move(held);
  return array;
}

std::optional<NumberArray> compressed_matrix(std::span<const std::byte> bytes,
                                             std::string_view name, std::string_view variable) {
  const std::vector<std::byte> plain = inflated(bytes, name);
  ByteReader reader(plain, name);
  const MatElement element = take_element(reader);
  if (element.type != kMatrix) return {};
  return matrix(element.bytes, name, variable);
}

}  // namespace

NumberArray read_mat(std::span<const std::byte> bytes, std::string_view name,
                     std::string_view variable) {
  ByteReader reader(bytes, name);
  check_header(reader);
  while (reader.left() > 0) {
    const MatElement element = take_element(reader);
    std::optional<NumberArray> found;
    if (element.type == kMatrix) found = matrix(element.bytes, name, variable);
    if (element.type == kCompressed) found = compressed_matrix(element.bytes, name, variable);
    if (found) return std::move(*found);
  }
  reader.refuse("there is no variable ", variable);
}

}  // namespace ebb
