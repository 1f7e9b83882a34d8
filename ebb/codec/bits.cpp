// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ebb/codec/element_codec.h"
#include "ebb/codec/rows.h"

namespace ebb {
namespace {

// One bit for each 0 or 1, the first in the lowest bit.
template <class T>
class Bits : public Codec {
 public:
  Bytes encoded_bytes(Bytes raw) const override {
    return (raw / static_cast<Bytes>(sizeof(T)) + 7) / 8;
  }

  Bytes encode(std::span<const std::byte> from, std::span<std::byte> to) const override {
    const auto in = elements<T>(from);
    for (std::size_t first = 0; first < in.size(); first += 8) {
      const std::size_t count = std::min<std::size_t>(8, in.size() - first);
      unsigned bits = 0;
      bool spikes = true;
      for (std::size_t i = 0; i < count; ++i) {
        const T value = in[first + i];
        bits |= (value != 0 ? 1U : 0U) << i;
        spikes = spikes && (value == 0 || value == 1);
      }
      if (!spikes) refuse(in.subspan(first, count), first);
      to[first / 8] = static_cast<std::byte>(bits);
    }
    return encoded_bytes(static_cast<Bytes>(from.size()));
  }

  void decode(std::span<const std::byte> from, std::span<std::byte> to) const override {
    const auto out = elements<T>(to);
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<T>((static_cast<unsigned>(from[i / 8]) >> (i % 8)) & 1);
    }
  }

 private:
  [[noreturn]] static void refuse(std::span<const T> values, std::size_t first) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] == 0 || values[i] == 1) continue;
      fail(ErrorCode::invalid_argument, "codec bits: element ", first + i, " is ", values[i],
           "; it takes 0 and 1 only");
    }
    fail(ErrorCode::invalid_argument, "codec bits: it takes 0 and 1 only");
  }
};

}  // namespace

std::unique_ptr<Codec> make_bits(Element element, std::string_view) {
  return for_element<Bits>("bits", element);
}

}  // namespace ebb
