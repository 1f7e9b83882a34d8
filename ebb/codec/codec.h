// SPDX-License-Identifier: Apache-2.0
// Codecs: what is kept for the way back, made smaller. Each row says whether decoding gives the same
// bits and whether the size is known beforehand. Where the bytes go is decided elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "ebb/core/bytes.h"

namespace ebb {

// What the elements of a field are.
enum class Element : std::uint8_t { f32, f64, byte };
constexpr Bytes element_bytes(Element element) {
  return element == Element::f32 ? 4 : element == Element::f64 ? 8 : 1;
}

// Encodes and decodes fields of one element type. Stateless: safe to use from several threads.
class Codec {
 public:
  Codec() = default;
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;
  virtual ~Codec() = default;

  // For a field of that many bytes: exactly that many where the row says `fixed`, at most elsewhere.
  // Throws Error(invalid_argument) if the field is no whole number of elements, or too large or of
  // the wrong shape for this codec.
  virtual Bytes encoded_bytes(Bytes raw) const = 0;
  // Returns the bytes written. `from` is aligned to its elements, `to` to 8 bytes, and they do not
  // overlap. `to` has encoded_bytes(from.size()) bytes; where the row does not say `fixed` it may
  // have fewer, and 0 is returned if they are not enough. Throws Error(invalid_argument) for a value
  // that this codec does not take; `to` is then unspecified. Nothing is allocated, except that zstd
  // keeps a working memory of its own for each thread.
  virtual Bytes encode(std::span<const std::byte> from, std::span<std::byte> to) const = 0;
  // `from` is what encode wrote, `to` as large as the field was; aligned as for encode, the other way
  // round. Throws Error(io) if that cannot be; `to` is then unspecified.
  virtual void decode(std::span<const std::byte> from, std::span<std::byte> to) const = 0;
};

struct CodecRow {
  std::string_view name;
  std::string_view what;
  bool exact;                  // decoding gives the bits back
  bool fixed;                  // the size does not depend on the content
  bool bytes;                  // takes Element::byte too
  std::string_view parameter;  // "" for none
  std::unique_ptr<Codec> (*make)(Element element, std::string_view parameter);
};

// The codecs of this build.
std::span<const CodecRow> codecs();
// Throws Error(invalid_argument) with the names there are, Error(unavailable) for one that this
// build lacks.
const CodecRow& codec_row(std::string_view name);
// `words`: a name, or a name and its parameter as in "pool:4". Throws as codec_row does, and
// Error(invalid_argument) for a parameter or an element type that the codec does not take.
std::unique_ptr<Codec> make_codec(std::string_view words, Element element);

}  // namespace ebb
