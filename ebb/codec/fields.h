// SPDX-License-Identifier: Apache-2.0
// Items made of fields, each encoded by a codec of its own. What an item is, a state or a tape, and
// where it is kept is the caller's business.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/codec/codec.h"
#include "ebb/core/bytes.h"

namespace ebb {

// Where a named part of a state or tape lies in it.
struct FieldShape {
  std::string name;
  Element element = Element::f32;
  Bytes offset = 0, bytes = 0;
};

// Encodes items of one layout. Bytes that belong to no field, and fields without a codec, are kept
// as they are. The encoded item has its parts in the order of the item: an encoded field begins at a
// multiple of 8 bytes, kept bytes lie where they lay in the item, modulo 8; what is between is 0. Safe
// to use from several threads.
class FieldCodec {
 public:
  // `words`: a codec for all fields whose elements it takes ("bf16"), or a codec for each field that
  // is to have one ("gates=int8,spikes=bits"). `keep`: a range of bytes that stays as it is whatever
  // the words say (the state inside a tape), with all fields that lie in it.
  // Throws Error(invalid_argument) for an unknown field (names those there are) or codec, a codec
  // without a fixed size or one that does not take the field; for fields that overlap, share a name,
  // lie beyond the item, are not aligned to their elements, or are partly in `keep`.
  FieldCodec(std::string_view words, std::vector<FieldShape> fields, Bytes item,
             Bytes keep_offset = 0, Bytes keep_bytes = 0);

  // Decoding gives the bits back.
  bool exact() const { return exact_; }
  Bytes raw_bytes() const { return raw_; }
  Bytes encoded_bytes() const { return encoded_; }

  // `item` has raw_bytes(), `to` at least encoded_bytes(); both are aligned to 8 bytes and do not
  // overlap. Throws Error(invalid_argument) with the field's name for values that its codec does not
  // take. Nothing is allocated.
  void encode(std::span<const std::byte> item, std::span<std::byte> to) const;
  // `from` is what encode wrote. Throws Error(io) if that cannot be.
  void decode(std::span<const std::byte> from, std::span<std::byte> item) const;

  // Where the byte at `offset` of the item lies in the encoded item. Throws
  // Error(invalid_argument) unless it is one that is kept as it is.
  Bytes kept_at(Bytes offset) const;

 private:
  // A stretch of the item: a field with its codec, or bytes that are kept.
  struct Part {
    std::string name;
    std::unique_ptr<Codec> codec;  // none: kept
    Bytes raw_at, raw_bytes;
    Bytes at, bytes;
  };
  void keep_until(Bytes end);
  void add_field(const FieldShape& field, std::unique_ptr<Codec> codec);

  std::vector<Part> parts_;  // by offset, without gaps
  Bytes raw_ = 0, encoded_ = 0;
  bool exact_ = true;
};

}  // namespace ebb
