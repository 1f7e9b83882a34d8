// SPDX-License-Identifier: Apache-2.0
// Numbers of a file in the type they have there. Private.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ebb/core/half_math.h"

namespace ebb {

enum class NumberType { boolean, i8, i16, i32, i64, u8, u16, u32, u64, f16, f32, f64 };

std::size_t bytes_of(NumberType type);
bool is_real(NumberType type);  // f16, f32 or f64

struct NumberArray {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  // in numbers, from one place of each dimension to the next
  NumberType type = NumberType::f32;
  bool swapped = false;              // the numbers are big-endian
  std::span<const std::byte> data;   // as many as the shape says
  std::shared_ptr<const void> held;  // what the data look into; null: the caller has it

  std::size_t count() const;
};
// Strides of an array without gaps, the last index fastest or, in Fortran's order, the first.
std::vector<std::int64_t> strides_of(std::span<const std::int64_t> shape, bool fortran);

// The product of the sizes; nothing if one is negative or it is above `most`.
std::optional<std::size_t> count_within(std::span<const std::int64_t> shape, std::size_t most);
// As in "[3,4]".
std::string shape_text(std::span<const std::int64_t> shape);

struct Half {
  std::uint16_t bits;
};
inline float operator+(Half number) { return from_fp16(number.bits); }

// Numbers of type T that lie anywhere, in the order of memory.
template <class T>
class PackedNumbers {
 public:
  explicit PackedNumbers(const NumberArray& array)
      : data_(array.data.data()), swapped_(array.swapped) {}
  // Small whole numbers become int, as everywhere in arithmetic.
  auto operator[](std::size_t i) const {
    std::array<std::byte, sizeof(T)> bytes;
    std::memcpy(bytes.data(), data_ + i * sizeof(T), sizeof(T));
    if (swapped_) std::ranges::reverse(bytes);
    return +std::bit_cast<T>(bytes);
  }

 private:
  const std::byte* data_;
  bool swapped_;
};

// Calls use(PackedNumbers<T>) with the array's T; booleans are bytes, 0 or not.
template <class Use>
decltype(auto) with_numbers(const NumberArray& array, Use use) {
  switch (array.type) {
    case NumberType::i8:
      return use(PackedNumbers<std::int8_t>(array));
    case NumberType::i16:
      return use(PackedNumbers<std::int16_t>(array));
    case NumberType::i32:
      return use(PackedNumbers<std::int32_t>(array));
    case NumberType::i64:
      return use(PackedNumbers<std::int64_t>(array));
    case NumberType::u16:
      return use(PackedNumbers<std::uint16_t>(array));
    case NumberType::u32:
      return use(PackedNumbers<std::uint32_t>(array));
    case NumberType::u64:
      return use(PackedNumbers<std::uint64_t>(array));
    case NumberType::f16:
      return use(PackedNumbers<Half>(array));
    case NumberType::f32:
      return use(PackedNumbers<float>(array));
    case NumberType::f64:
      return use(PackedNumbers<double>(array));
    case NumberType::boolean:
    case NumberType::u8:
      break;
  }
  return use(PackedNumbers<std::uint8_t>(array));
}

}  // namespace ebb
