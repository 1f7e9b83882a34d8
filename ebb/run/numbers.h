// SPDX-License-Identifier: Apache-2.0
// Bytes seen as the numbers that they are, for comparisons. Which those are the fields say.
#pragma once

#include <cmath>
#include <cstring>
#include <span>

#include "ebb/codec/codec.h"
#include "ebb/codec/fields.h"

namespace ebb {

inline double number_at(std::span<const std::byte> bytes, Element element, std::size_t i) {
  if (element == Element::f64) {
    double value = 0;
    std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
    return value;
  }
  if (element == Element::f32) {
    float value = 0;
    std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
    return value;
  }
  return static_cast<double>(bytes[i]);
}

// Rounds to what the element can hold.
inline void set_number(std::span<std::byte> bytes, Element element, std::size_t i, double value) {
  if (element == Element::f64) {
    std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
  } else if (element == Element::f32) {
    const auto narrow = static_cast<float>(value);
    std::memcpy(bytes.data() + i * sizeof narrow, &narrow, sizeof narrow);
  } else {
    bytes[i] = static_cast<std::byte>(value);
  }
}

// Where a field lies in a state; nothing where the state lacks it, as a final one may.
template <class Byte>
std::span<Byte> part_of(const FieldShape& field, std::span<Byte> state) {
  if (field.offset + field.bytes > static_cast<Bytes>(state.size())) return {};
  return state.subspan(static_cast<std::size_t>(field.offset),
                       static_cast<std::size_t>(field.bytes));
}

// NaN is larger than anything.
inline double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }

}  // namespace ebb
