// SPDX-License-Identifier: Apache-2.0
#include "ebb/codec/element_codec.h"
#include "ebb/codec/rows.h"
#include "ebb/core/half_math.h"

namespace ebb {
namespace {

// A double is rounded to float first.
template <class T, std::uint16_t (*narrow)(float), float (*widen)(std::uint16_t)>
class Half : public ElementCodec<T> {
 public:
  using ElementCodec<T>::ElementCodec;

 private:
  std::size_t encoded_size(std::size_t count) const override { return 2 * count; }
  void encode_elements(std::span<const T> in, std::span<std::byte> to) const override {
    const auto out = elements<std::uint16_t>(to);
    for (std::size_t i = 0; i < in.size(); ++i) out[i] = narrow(static_cast<float>(in[i]));
  }
  void decode_elements(std::span<const std::byte> from, std::span<T> out) const override {
    const auto in = elements<std::uint16_t>(from);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<T>(widen(in[i]));
  }
};
template <class T>
using Bf16 = Half<T, to_bf16, from_bf16>;
template <class T>
using Fp16 = Half<T, to_fp16, from_fp16>;

}  // namespace

std::unique_ptr<Codec> make_bf16(Element element, std::string_view) {
  return for_element<Bf16>("bf16", element);
}
std::unique_ptr<Codec> make_fp16(Element element, std::string_view) {
  return for_element<Fp16>("fp16", element);
}

}  // namespace ebb
