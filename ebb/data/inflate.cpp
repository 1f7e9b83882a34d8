// SPDX-License-Identifier: Apache-2.0
#include "ebb/data/inflate.h"

#include <zlib.h>

#include <algorithm>
#include <string>
#include <utility>

#include "ebb/core/error.h"

namespace ebb {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 30;  // zlib counts in 32 bits
constexpr std::size_t kFirstRoom = std::size_t{1} << 16;
constexpr int kGzipOrZlib = 15 + 32;

class Inflater {
 public:
  Inflater(std::span<const std::byte> bytes, std::string_view name, std::size_t most)
      : in_(bytes), name_(name), most_(most) {
    if (inflateInit2(&stream_, kGzipOrZlib) != Z_OK) {
      fail(ErrorCode::out_of_memory, name_, ": no memory to decompress it");
    }
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { inflateEnd(&stream_); }

  std::vector<std::byte> all() {
    const bool gzip = is_gzip(in_);
    stream();
    while (gzip && is_gzip(in_)) {
      inflateReset(&stream_);
      stream();
    }
    if (!in_.empty()) refuse("bytes follow the compressed ones");
    out_.resize(done_);
    return std::move(out_);
  }

 private:
  // One stream or member, to its end and checksum.
  void stream() {
    for (int state = Z_OK; state != Z_STREAM_END;) {
      if (done_ == out_.size()) grow();
      const std::size_t give = std::min(in_.size(), kPiece);
      const std::size_t room = std::min(out_.size() - done_, kPiece);
      // zlib only reads it; its header says so only if asked to.
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(in_.data()));
      stream_.avail_in = static_cast<uInt>(give);
      stream_.next_out = reinterpret_cast<Bytef*>(out_.data() + done_);
      stream_.avail_out = static_cast<uInt>(room);
      state = ::inflate(&stream_, Z_NO_FLUSH);
      in_ = in_.subspan(give - stream_.avail_in);
      done_ += room - stream_.avail_out;
      if (done_ > most_) refuse("more than ", most_, " bytes when decompressed");
      if (state == Z_MEM_ERROR) fail(ErrorCode::out_of_memory, name_, ": no memory");
      if (state == Z_BUF_ERROR) refuse("the compressed bytes end too early");
      if (state != Z_OK && state != Z_STREAM_END) {
        refuse("the compressed bytes are damaged",
               stream_.msg == nullptr ? "" : std::string(": ") + stream_.msg);
      }
    }
  }
  // One more than allowed, so that more is seen.
  void grow() { out_.resize(std::min(most_ + 1, std::max(kFirstRoom, 2 * out_.size()))); }

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(ErrorCode::invalid_argument, name_, ": ", parts...);
  }

  std::span<const std::byte> in_;
  std::string_view name_;
  std::size_t most_;
  z_stream stream_{};
  std::vector<std::byte> out_;
  std::size_t done_ = 0;
};

}  // namespace

std::vector<std::byte> inflated(std::span<const std::byte> bytes, std::string_view name,
                                std::size_t most) {
  return Inflater(bytes, name, most).all();
}

}  // namespace ebb
