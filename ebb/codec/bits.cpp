// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "ebb/codec/element_codec.h"
#include "ebb/codec/rows.h"

namespace ebb {
namespace {

// One bit for each 0 or 1, the first in the lowest bit. By their bits: a negative zero is refused.
template <class T>
class Bits : public ElementCodec<T> {
 public:
  using ElementCodec<T>::ElementCodec;

 private:
  using Word = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  static constexpr Word kOne = std::bit_cast<Word>(T{1});
  // That many at once that the loops over them become vector code.
  static constexpr std::size_t kMany = 64;
  static constexpr std::array<Word, 8> kMasks{1, 2, 4, 8, 16, 32, 64, 128};

  std::size_t encoded_size(std::size_t count) const override { return (count + 7) / 8; }

  void encode_elements(std::span<const T> in, std::span<std::byte> to) const override {
    const std::size_t whole = in.size() / kMany * kMany;
    for (std::size_t first = 0; first < whole; first += kMany) {
      pack(in.subspan(first).template first<kMany>(), first, &to[first / 8]);
    }
    if (whole == in.size()) return;
    std::array<T, kMany> rest{};
    std::array<std::byte, kMany / 8> packed;
    std::ranges::copy(in.subspan(whole), rest.begin());
    pack(rest, whole, packed.data());
    std::copy_n(packed.begin(), to.size() - whole / 8, &to[whole / 8]);
  }

  void decode_elements(std::span<const std::byte> from, std::span<T> out) const override {
    const std::size_t whole = out.size() / 8 * 8;
    for (std::size_t first = 0; first < whole; first += 8) {
      const std::array<T, 8> eight = unpack(from[first / 8]);
      std::ranges::copy(eight, &out[first]);
    }
    if (whole < out.size()) {
      const std::array<T, 8> eight = unpack(from[whole / 8]);
      std::copy_n(eight.begin(), out.size() - whole, &out[whole]);
    }
  }

  static void pack(std::span<const T, kMany> values, std::size_t first, std::byte* to) {
    std::array<std::uint8_t, kMany> ones;
    Word wrong = 0;
    for (std::size_t i = 0; i < kMany; ++i) {
      const Word value = std::bit_cast<Word>(values[i]);
      const Word one = value == kOne ? ~Word{0} : 0;
      ones[i] = static_cast<std::uint8_t>(one & 1);
      wrong |= value & ~one;
    }
    if (wrong != 0) refuse(values, first);
    for (std::size_t b = 0; b < kMany / 8; ++b) {
      std::uint64_t eight = 0;
      std::memcpy(&eight, &ones[8 * b], sizeof eight);
      // Byte i of eight, 0 or 1, is moved to bit 56 + i; nothing else reaches the top byte.
      to[b] = static_cast<std::byte>((eight * 0x0102040810204080) >> 56);
    }
  }

  static std::array<T, 8> unpack(std::byte bits) {
    const Word word = std::to_integer<Word>(bits);
    std::array<T, 8> values;
    for (std::size_t i = 0; i < 8; ++i) values[i] = (word & kMasks[i]) != 0 ? T{1} : T{0};
    return values;
  }

  [[noreturn]] static void refuse(std::span<const T> values, std::size_t first) {
    const auto found = std::ranges::find_if(
        values, [](T value) { return std::bit_cast<Word>(value) != 0 && value != T{1}; });
    fail(ErrorCode::invalid_argument, "codec bits: element ", first + (found - values.begin()),
         " is ", *found, "; it takes 0 and 1 only");
  }
};

}  // namespace

std::unique_ptr<Codec> make_bits(Element element, std::string_view) {
  return for_element<Bits>("bits", element);
}

}  // namespace ebb
