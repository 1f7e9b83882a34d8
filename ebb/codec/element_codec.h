// SPDX-License-Identifier: Apache-2.0
// What codecs over elements share: views of bytes as elements, and the choice of the element type.
#pragma once

#include <memory>
#include <string_view>

#include "ebb/codec/codec.h"
#include "ebb/core/error.h"

namespace ebb {

template <class T>
std::span<const T> elements(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}
template <class T>
std::span<T> elements(std::span<std::byte> bytes) {
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}

// C<float> or C<double>; bytes have no such codec.
template <template <class> class C, class... Arguments>
std::unique_ptr<Codec> for_element(std::string_view name, Element element,
                                   const Arguments&... arguments) {
  if (element == Element::f32) return std::make_unique<C<float>>(arguments...);
  if (element == Element::f64) return std::make_unique<C<double>>(arguments...);
  fail(ErrorCode::invalid_argument, "codec ", name,
       " is for float and double; for bytes take raw, "
       "zstd or lz4");
}

// Throws Error(invalid_argument) for anything but a whole number in [least, most].
std::int64_t codec_number(std::string_view name, std::string_view parameter, std::int64_t least,
                          std::int64_t most);

}  // namespace ebb
