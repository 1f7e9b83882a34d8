// SPDX-License-Identifier: Apache-2.0
#include <lz4.h>

#include <algorithm>
#include <limits>

#include "ebb/codec/element_codec.h"
#include "ebb/codec/rows.h"

namespace ebb {
namespace {

class Lz4 : public Codec {
 public:
  Bytes encoded_bytes(Bytes raw) const override {
    element_count("lz4", raw, 1);
    if (raw > LZ4_MAX_INPUT_SIZE) {
      fail(ErrorCode::invalid_argument, "codec lz4: a field of ", format_bytes(raw),
           " is too large; take zstd beyond ", format_bytes(LZ4_MAX_INPUT_SIZE));
    }
    return LZ4_compressBound(static_cast<int>(raw));
  }
  Bytes encode(std::span<const std::byte> from, std::span<std::byte> to) const override {
    const Bytes most = encoded_bytes(static_cast<Bytes>(from.size()));
    const Bytes room = std::min(most, static_cast<Bytes>(to.size()));
    return LZ4_compress_default(reinterpret_cast<const char*>(from.data()),
                                reinterpret_cast<char*>(to.data()), static_cast<int>(from.size()),
                                static_cast<int>(room));
  }
  void decode(std::span<const std::byte> from, std::span<std::byte> to) const override {
    constexpr std::size_t most = std::numeric_limits<int>::max();
    const int done =
        from.size() > most || to.size() > most
            ? -1
            : LZ4_decompress_safe(reinterpret_cast<const char*>(from.data()),
                                  reinterpret_cast<char*>(to.data()), static_cast<int>(from.size()),
                                  static_cast<int>(to.size()));
    if (done < 0 || static_cast<std::size_t>(done) != to.size()) {
      fail(ErrorCode::io, "codec lz4: the encoded field is damaged");
    }
  }
};

}  // namespace

std::unique_ptr<Codec> make_lz4(Element, std::string_view) { return std::make_unique<Lz4>(); }

}  // namespace ebb
