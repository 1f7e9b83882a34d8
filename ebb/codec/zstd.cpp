// SPDX-License-Identifier: Apache-2.0
// The contexts are one for each thread, of some hundred KiB up to some MiB at high levels: zstd
// allocates them at a thread's first call and when a level or a size asks for more, outside of any
// ledger.
#include <zstd.h>
#include <zstd_errors.h>

#include "ebb/codec/element_codec.h"
#include "ebb/codec/rows.h"

namespace ebb {
namespace {

template <class Context, Context* (*create)(), std::size_t (*destroy)(Context*)>
Context* thread_context() {
  struct Destroy {
    void operator()(Context* context) const { destroy(context); }
  };
  thread_local std::unique_ptr<Context, Destroy> context;
  if (context == nullptr) context.reset(create());
  if (context == nullptr) fail(ErrorCode::out_of_memory, "codec zstd: no memory for a context");
  return context.get();
}

class Zstd : public Codec {
 public:
  explicit Zstd(int level) : level_(level) {}

  Bytes encoded_bytes(Bytes raw) const override {
    const std::size_t bound = ZSTD_compressBound(element_count("zstd", raw, 1));
    return ZSTD_isError(bound) != 0 || bound > static_cast<std::size_t>(kUnlimited)
               ? kUnlimited
               : static_cast<Bytes>(bound);
  }
  Bytes encode(std::span<const std::byte> from, std::span<std::byte> to) const override {
    const std::size_t done =
        ZSTD_compressCCtx(thread_context<ZSTD_CCtx, ZSTD_createCCtx, ZSTD_freeCCtx>(), to.data(),
                          to.size(), from.data(), from.size(), level_);
    if (ZSTD_isError(done) == 0) return static_cast<Bytes>(done);
    if (ZSTD_getErrorCode(done) == ZSTD_error_dstSize_tooSmall) return 0;
    fail(ErrorCode::out_of_memory, "codec zstd: ", ZSTD_getErrorName(done));
  }
  void decode(std::span<const std::byte> from, std::span<std::byte> to) const override {
    const std::size_t done =
        ZSTD_decompressDCtx(thread_context<ZSTD_DCtx, ZSTD_createDCtx, ZSTD_freeDCtx>(), to.data(),
                            to.size(), from.data(), from.size());
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
