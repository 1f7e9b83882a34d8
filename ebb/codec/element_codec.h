// SPDX-License-Identifier: Apache-2.0
// What codecs over elements share: views of bytes as elements, checked sizes, and the choice of the
// element type.
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

// How many elements of `element` bytes a field of `raw` bytes has. Throws Error(invalid_argument)
// if that is no whole number.
std::size_t element_count(std::string_view name, Bytes raw, Bytes element);

// Throws Error(invalid_argument) for anything but a whole number in [least, most].
std::int64_t codec_number(std::string_view name, std::string_view parameter, std::int64_t least,
                          std::int64_t most);

// A codec whose encoded size follows from the number of elements. The sizes of what it is given are
// checked here, once a call.
template <class T>
class ElementCodec : public Codec {
 public:
  explicit ElementCodec(std::string_view name) : name_(name) {}

  Bytes encoded_bytes(Bytes raw) const final {
    return static_cast<Bytes>(encoded_size(element_count(name_, raw, sizeof(T))));
  }
  Bytes encode(std::span<const std::byte> from, std::span<std::byte> to) const final {
    const Bytes size = encoded_bytes(static_cast<Bytes>(from.size()));
    if (static_cast<Bytes>(to.size()) < size) {
      fail(ErrorCode::invalid_argument, "codec ", name_, ": ", to.size(), " bytes for ", size);
    }
    encode_elements(elements<T>(from), to.first(static_cast<std::size_t>(size)));
    return size;
  }
  void decode(std::span<const std::byte> from, std::span<std::byte> to) const final {
    const Bytes size = encoded_bytes(static_cast<Bytes>(to.size()));
    if (static_cast<Bytes>(from.size()) != size) {
      fail(ErrorCode::io, "codec ", name_, ": the encoded field has ", from.size(),
           " bytes instead of ", size);
    }
    decode_elements(from, elements<T>(to));
  }

 private:
  virtual std::size_t encoded_size(std::size_t count) const = 0;
  virtual void encode_elements(std::span<const T> in, std::span<std::byte> to) const = 0;
  virtual void decode_elements(std::span<const std::byte> from, std::span<T> out) const = 0;

  std::string_view name_;
};

// C<float> or C<double>; bytes have no such codec.
template <template <class> class C, class... Arguments>
std::unique_ptr<Codec> for_element(std::string_view name, Element element,
                                   const Arguments&... arguments) {
  if (element == Element::f32) return std::make_unique<C<float>>(name, arguments...);
  if (element == Element::f64) return std::make_unique<C<double>>(name, arguments...);
  fail(ErrorCode::invalid_argument, "codec ", name,
       " is for float and double; for bytes take raw, zstd or lz4");
}

}  // namespace ebb
