// SPDX-License-Identifier: Apache-2.0
// Barley & Fröning 2024: what is kept is the mean of each block of neighbours. The field is seen as
// [outer, inner]: blocks run over `outer`, whose neighbours lie `inner` elements apart. The last
// block may be shorter and uses its true count.
#include <algorithm>

#include "ebb/codec/element_codec.h"
#include "ebb/codec/rows.h"

namespace ebb {
namespace {

template <class T>
class Pool : public Codec {
 public:
  Pool(std::int64_t block, std::int64_t inner)
      : block_(static_cast<std::size_t>(block)), inner_(static_cast<std::size_t>(inner)) {}

  Bytes encoded_bytes(Bytes raw) const override {
    const std::size_t rows = rows_of(static_cast<std::size_t>(raw));
    return static_cast<Bytes>((rows + block_ - 1) / block_ * inner_ * sizeof(T));
  }

  Bytes encode(std::span<const std::byte> from, std::span<std::byte> to) const override {
    const auto in = elements<T>(from);
    const auto out = elements<T>(to);
    const std::size_t rows = rows_of(from.size());
    for (std::size_t first = 0; first < rows; first += block_) {
      const std::size_t count = std::min(block_, rows - first);
      for (std::size_t i = 0; i < inner_; ++i) {
        T sum = 0;
        for (std::size_t r = 0; r < count; ++r) sum += in[(first + r) * inner_ + i];
        out[first / block_ * inner_ + i] = sum / static_cast<T>(count);
      }
    }
    return encoded_bytes(static_cast<Bytes>(from.size()));
  }

  void decode(std::span<const std::byte> from, std::span<std::byte> to) const override {
    const auto in = elements<T>(from);
    const auto out = elements<T>(to);
    const std::size_t rows = rows_of(to.size());
    for (std::size_t r = 0; r < rows; ++r) {
      std::copy_n(&in[r / block_ * inner_], inner_, &out[r * inner_]);
    }
  }

 private:
  std::size_t rows_of(std::size_t bytes) const {
    const std::size_t count = bytes / sizeof(T);
    if (count % inner_ != 0) {
      fail(ErrorCode::invalid_argument, "codec pool: a field of ", count,
           " elements has no rows of ", inner_);
    }
    return count / inner_;
  }

  std::size_t block_, inner_;
};

}  // namespace

std::unique_ptr<Codec> make_pool(Element element, std::string_view parameter) {
  const std::size_t cross = parameter.find('x');
  const std::int64_t block =
      parameter.empty() ? 2 : codec_number("pool", parameter.substr(0, cross), 1, 1 << 20);
  const std::int64_t inner = cross == std::string_view::npos
                                 ? 1
                                 : codec_number("pool", parameter.substr(cross + 1), 1, 1 << 30);
  return for_element<Pool>("pool", element, block, inner);
}

}  // namespace ebb
