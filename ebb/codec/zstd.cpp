// SPDX-License-Identifier: Apache-2.0
#include <zstd.h>

#include "ebb/codec/element_codec.h"
#include "ebb/codec/rows.h"

namespace ebb {
namespace {

class Zstd : public Codec {
 public:
  explicit Zstd(int level) : level_(level) {}

  Bytes encoded_bytes(Bytes raw) const override {
    return static_cast<Bytes>(ZSTD_compressBound(static_cast<std::size_t>(raw)));
  }
  Bytes encode(std::span<const std::byte> from, std::span<std::byte> to) const override {
    const std::size_t done = ZSTD_compress(to.data(), to.size(), from.data(), from.size(), level_);
    return ZSTD_isError(done) != 0 ? 0 : static_cast<Bytes>(done);
  }
  void decode(std::span<const std::byte> from, std::span<std::byte> to) const override {
    const std::size_t done = ZSTD_decompress(to.data(), to.size(), from.data(), from.size());
    if (ZSTD_isError(done) != 0) fail(ErrorCode::io, "codec zstd: ", ZSTD_getErrorName(done));
    if (done != to.size()) fail(ErrorCode::io, "codec zstd: the encoded field is damaged");
  }

 private:
  int level_;
};

}  // namespace

std::unique_ptr<Codec> make_zstd(Element, std::string_view parameter) {
  const std::int64_t level = parameter.empty() ? 1 : codec_number("zstd", parameter, 1, 19);
  return std::make_unique<Zstd>(static_cast<int>(level));
}

}  // namespace ebb
