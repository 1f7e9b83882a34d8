// SPDX-License-Identifier: Apache-2.0
#include "ebb/data/number_array.h"

#include <algorithm>

namespace ebb {

std::size_t bytes_of(NumberType type) {
  switch (type) {
    case NumberType::boolean:
    case NumberType::i8:
    case NumberType::u8:
      return 1;
    case NumberType::i16:
    case NumberType::u16:
    case NumberType::f16:
      return 2;
    case NumberType::i32:
    case NumberType::u32:
    case NumberType::f32:
      return 4;
    case NumberType::i64:
    case NumberType::u64:
    case NumberType::f64:
      break;
  }
  return 8;
}

bool is_real(NumberType type) {
  return type == NumberType::f16 || type == NumberType::f32 || type == NumberType::f64;
}

std::size_t NumberArray::count() const { return data.size() / bytes_of(type); }

std::vector<std::int64_t> strides_of(std::span<const std::int64_t> shape, bool fortran) {
  std::vector<std::int64_t> strides(shape.size());
  // Where a size is 0 there is no number, and any stride is right.
  std::int64_t stride = std::ranges::find(shape, 0) == shape.end() ? 1 : 0;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::size_t d = fortran ? i : shape.size() - 1 - i;
    strides[d] = stride;
    stride *= shape[d];
  }
  return strides;
}

std::optional<std::size_t> count_within(std::span<const std::int64_t> shape, std::size_t most) {
  if (std::ranges::any_of(shape, [](std::int64_t size) { return size < 0; })) return {};
  if (std::ranges::find(shape, 0) != shape.end()) return 0;
  std::size_t count = 1;
  for (const std::int64_t size : shape) {
    if (static_cast<std::uint64_t>(size) > most / count) return {};
    count *= static_cast<std::size_t>(size);
  }
  return count <= most ? std::optional(count) : std::nullopt;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (const std::int64_t size : shape) {
    text += (text.size() > 1 ? "," : "") + std::to_string(size);
  }
  return text + "]";
}

}  // namespace ebb
