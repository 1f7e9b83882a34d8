// SPDX-License-Identifier: Apache-2.0
// Fields to encode: of floats or doubles, spikes, numbers of every size, or all the odd ones.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <string_view>
#include <vector>

#include "ebb/codec/codec.h"

namespace ebb::test {

using Field = std::vector<std::byte>;

template <class T>
Field bytes_of(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

template <class T>
std::vector<T> values_of(const Field& field) {
  std::vector<T> values(field.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), field.data(), field.size());
  return values;
}

// What encode writes, in exactly as many bytes, so that a sanitizer sees every one too many.
inline Field encoded(const Codec& codec, const Field& field) {
  Field to(static_cast<std::size_t>(codec.encoded_bytes(static_cast<Bytes>(field.size()))),
           std::byte{0xA5});
  to.resize(static_cast<std::size_t>(codec.encode(field, to)));
  return to;
}

inline Field decoded(const Codec& codec, const Field& from, std::size_t bytes) {
  Field to(bytes, std::byte{0x5A});
  codec.decode(Field(from), to);
  return to;
}

inline Field round_trip(const Codec& codec, const Field& field) {
  return decoded(codec, encoded(codec, field), field.size());
}

template <class T>
std::vector<T> round_trip(const Codec& codec, const std::vector<T>& values) {
  return values_of<T>(round_trip(codec, bytes_of(values)));
}

template <class T>
constexpr Element kElement = sizeof(T) == 4 ? Element::f32 : Element::f64;

// In [0, 1), the same on every machine, which the standard's distributions are not.
inline double uniform(std::mt19937_64& random) {
  return static_cast<double>(random() >> 11) * 0x1p-53;
}

template <class T>
std::vector<T> spikes(std::size_t count, double density, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<T> values(count);
  for (T& value : values) value = uniform(random) < density ? T{1} : T{0};
  return values;
}

// Numbers of both signs from 2^-20 to 2^20.
template <class T>
std::vector<T> numbers(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<T> values(count);
  for (T& value : values) {
    const int exponent = static_cast<int>(random() % 40) - 20;
    const double size = std::ldexp(1 + uniform(random), exponent);
    value = static_cast<T>(random() % 2 == 0 ? size : -size);
  }
  return values;
}

// Infinities, NaN, zeros of both signs, denormals and the largest, in turn from one that `seed` sets.
template <class T>
std::vector<T> odd_ones(std::size_t count, std::uint64_t seed) {
  using Limits = std::numeric_limits<T>;
  const T odd[] = {T{0},
                   -T{0},
                   Limits::infinity(),
                   -Limits::infinity(),
                   Limits::max(),
                   Limits::lowest(),
                   Limits::min(),
                   -Limits::denorm_min(),
                   Limits::quiet_NaN(),
                   -Limits::quiet_NaN(),
                   T{1},
                   Limits::denorm_min()};
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = odd[(seed + i) % std::size(odd)];
  return values;
}

}  // namespace ebb::test
