// SPDX-License-Identifier: Apache-2.0
// Numbers of a file in the type they have there. Private.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ebb {

enum class NumberType { boolean, i8, i16, i32, i64, u8, u16, u32, u64, f32, f64 };

std::size_t bytes_of(NumberType type);
bool is_real(NumberType type);  // f32 or f64

struct NumberArray {
  std::vector<std::int64_t> shape;
  NumberType type = NumberType::f32;
  std::vector<std::byte> data;  // little-endian, as many as the shape says
};

// The product of the sizes; nothing if one is negative or it is above `most`.
std::optional<std::size_t> count_within(std::span<const std::int64_t> shape, std::size_t most);
// As in "[3,4]".
std::string shape_text(std::span<const std::int64_t> shape);

// Numbers of type T that lie anywhere.
template <class T>
class PackedNumbers {
 public:
  explicit PackedNumbers(const std::byte* data) : data_(data) {}
  // Small whole numbers become int, as everywhere in arithmetic.
  auto operator[](std::size_t i) const {
    T value;
    std::memcpy(&value, data_ + i * sizeof(T), sizeof(T));
    return +value;
  }

 private:
  const std::byte* data_;
};

// Calls use(PackedNumbers<T>) with the array's T; booleans are bytes, 0 or not.
template <class Use>
decltype(auto) with_numbers(const NumberArray& array, Use use) {
  const std::byte* const data = array.data.data();
  switch (array.type) {
    case NumberType::i8:
      return use(PackedNumbers<std::int8_t>(data));
    case NumberType::i16:
      return use(PackedNumbers<std::int16_t>(data));
    case NumberType::i32:
      return use(PackedNumbers<std::int32_t>(data));
    case NumberType::i64:
      return use(PackedNumbers<std::int64_t>(data));
    case NumberType::u16:
      return use(PackedNumbers<std::uint16_t>(data));
    case NumberType::u32:
      return use(PackedNumbers<std::uint32_t>(data));
    case NumberType::u64:
      return use(PackedNumbers<std::uint64_t>(data));
    case NumberType::f32:
      return use(PackedNumbers<float>(data));
    case NumberType::f64:
      return use(PackedNumbers<double>(data));
    case NumberType::boolean:
    case NumberType::u8:
      break;
  }
  return use(PackedNumbers<std::uint8_t>(data));
}

}  // namespace ebb
