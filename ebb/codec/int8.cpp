// SPDX-License-Identifier: Apache-2.0
#include "ebb/codec/int8_math.h"

#include <algorithm>
#include <cmath>

#include "ebb/codec/element_codec.h"
#include "ebb/codec/rows.h"

namespace ebb {
namespace {

// All scales, then all values.
template <class T>
class Int8 : public Codec {
 public:
  Bytes encoded_bytes(Bytes raw) const override {
    const Bytes count = raw / static_cast<Bytes>(sizeof(T));
    return blocks(count) * static_cast<Bytes>(sizeof(float)) + count;
  }

  Bytes encode(std::span<const std::byte> from, std::span<std::byte> to) const override {
    const auto in = elements<T>(from);
    const auto [scales, values] = parts(to, in.size());
    for (std::size_t b = 0; b < scales.size(); ++b) {
      const std::size_t first = b * kInt8Block;
      const std::size_t last = std::min<std::size_t>(first + kInt8Block, in.size());
      float largest = 0;
      for (std::size_t i = first; i < last; ++i) {
        const auto value = static_cast<float>(in[i]);
        if (!std::isfinite(value)) {
          fail(ErrorCode::invalid_argument, "codec int8: element ", i, " is ", value,
               "; it takes finite numbers only");
        }
        largest = std::max(largest, std::abs(value));
      }
      scales[b] = int8_scale(largest);
      const float inverse = scales[b] > 0 ? 1 / scales[b] : 0;
      for (std::size_t i = first; i < last; ++i) {
        values[i] = to_int8(static_cast<float>(in[i]), inverse);
      }
    }
    return encoded_bytes(static_cast<Bytes>(from.size()));
  }

  void decode(std::span<const std::byte> from, std::span<std::byte> to) const override {
    const auto out = elements<T>(to);
    const auto [scales, values] =
        parts({const_cast<std::byte*>(from.data()), from.size()}, out.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<T>(from_int8(values[i], scales[i / kInt8Block]));
    }
  }

 private:
  struct Parts {
    std::span<float> scales;
    std::span<std::int8_t> values;
  };
  static Bytes blocks(Bytes count) { return (count + kInt8Block - 1) / kInt8Block; }
  static Parts parts(std::span<std::byte> bytes, std::size_t count) {
    const auto head = static_cast<std::size_t>(blocks(static_cast<Bytes>(count))) * sizeof(float);
    return {elements<float>(bytes.first(head)), elements<std::int8_t>(bytes.subspan(head, count))};
  }
};

}  // namespace

std::unique_ptr<Codec> make_int8(Element element, std::string_view) {
  return for_element<Int8>("int8", element);
}

}  // namespace ebb
