// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ebb/codec/element_codec.h"
#include "ebb/codec/int8_math.h"
#include "ebb/codec/rows.h"

namespace ebb {
namespace {

constexpr std::size_t kBlock = kInt8Block;

// All scales, then all values.
template <class T>
class Int8 : public ElementCodec<T> {
 public:
  using ElementCodec<T>::ElementCodec;

 private:
  static std::size_t scales_bytes(std::size_t count) {
    return (count + kBlock - 1) / kBlock * sizeof(float);
  }
  std::size_t encoded_size(std::size_t count) const override { return scales_bytes(count) + count; }

  void encode_elements(std::span<const T> in, std::span<std::byte> to) const override {
    const auto scales = elements<float>(to.first(scales_bytes(in.size())));
    const auto values = elements<std::int8_t>(to.subspan(scales_bytes(in.size())));
    for (std::size_t b = 0; b < scales.size(); ++b) {
      const std::size_t first = b * kBlock;
      const auto block = in.subspan(first, std::min(kBlock, in.size() - first));
      std::int32_t largest = 0;
      for (const T value : block) {
        largest = std::max(largest, size_bits(static_cast<float>(value)));
      }
      if (largest >= kInfiniteSize) refuse(block, first);
      const float scale = int8_scale(std::bit_cast<float>(largest));
      scales[b] = scale;
      for (std::size_t i = 0; i < block.size(); ++i) {
        values[first + i] = to_int8(static_cast<float>(block[i]), scale);
      }
    }
  }

  void decode_elements(std::span<const std::byte> from, std::span<T> out) const override {
    const auto scales = elements<float>(from.first(scales_bytes(out.size())));
    const auto values = elements<std::int8_t>(from.subspan(scales_bytes(out.size())));
    for (std::size_t b = 0; b < scales.size(); ++b) {
      const std::size_t first = b * kBlock;
      const auto block = out.subspan(first, std::min(kBlock, out.size() - first));
      const float scale = scales[b];
      for (std::size_t i = 0; i < block.size(); ++i) {
        block[i] = static_cast<T>(from_int8(values[first + i], scale));
      }
    }
  }

  [[noreturn]] static void refuse(std::span<const T> block, std::size_t first) {
    const auto found = std::ranges::find_if(
        block, [](T value) { return size_bits(static_cast<float>(value)) >= kInfiniteSize; });
    fail(ErrorCode::invalid_argument, "codec int8: element ", first + (found - block.begin()),
         " is ", *found, "; it takes finite numbers in the range of float only");
  }
};

}  // namespace

std::unique_ptr<Codec> make_int8(Element element, std::string_view) {
  return for_element<Int8>("int8", element);
}

}  // namespace ebb
