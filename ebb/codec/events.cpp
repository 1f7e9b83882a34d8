// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "ebb/codec/element_codec.h"
#include "ebb/codec/rows.h"

namespace ebb {
namespace {

// A count, then the index of every element whose bits are not all zero, then their values. Beyond
// the cap, a share of the elements in percent, a count of kRaw and the field as it is.
template <class T>
class Events : public Codec {
 public:
  explicit Events(std::int64_t percent) : percent_(percent) {}

  Bytes encoded_bytes(Bytes raw) const override {
    return raw + static_cast<Bytes>(sizeof(std::uint32_t));
  }

  Bytes encode(std::span<const std::byte> from, std::span<std::byte> to) const override {
    const std::size_t count = from.size() / sizeof(T);
    if (to.size() < sizeof(std::uint32_t)) return 0;
    const std::size_t room = (to.size() - sizeof(std::uint32_t)) / kEvent;
    const std::size_t allowed = count * static_cast<std::size_t>(percent_) / 100;
    const std::size_t cap = std::min({most_events(count), allowed, room});
    std::byte* const indices = to.data() + sizeof(std::uint32_t);
    std::size_t found = 0;
    for (std::size_t i = 0; i < count && found <= cap; ++i) {
      if (is_zero(from.data() + i * sizeof(T))) continue;
      if (found < cap) {
        const auto index = static_cast<std::uint32_t>(i);
        std::memcpy(indices + found * sizeof index, &index, sizeof index);
      }
      ++found;
    }
    if (found > cap) {
      if (static_cast<Bytes>(to.size()) < encoded_bytes(static_cast<Bytes>(from.size()))) return 0;
      write_count(to, kRaw);
      std::memcpy(indices, from.data(), from.size());
      return encoded_bytes(static_cast<Bytes>(from.size()));
    }
    std::byte* const values = indices + found * sizeof(std::uint32_t);
    for (std::size_t e = 0; e < found; ++e) {
      std::uint32_t index = 0;
      std::memcpy(&index, indices + e * sizeof index, sizeof index);
      std::memcpy(values + e * sizeof(T), from.data() + index * sizeof(T), sizeof(T));
    }
    write_count(to, static_cast<std::uint32_t>(found));
    return static_cast<Bytes>(sizeof(std::uint32_t) + found * kEvent);
  }

  void decode(std::span<const std::byte> from, std::span<std::byte> to) const override {
    std::uint32_t found = 0;
    if (from.size() < sizeof found) refuse();
    std::memcpy(&found, from.data(), sizeof found);
    const std::byte* const indices = from.data() + sizeof found;
    if (found == kRaw) {
      if (from.size() != to.size() + sizeof found) refuse();
      std::memcpy(to.data(), indices, to.size());
      return;
    }
    if (from.size() != sizeof found + found * kEvent) refuse();
    const std::byte* const values = indices + found * sizeof(std::uint32_t);
    std::memset(to.data(), 0, to.size());
    for (std::size_t e = 0; e < found; ++e) {
      std::uint32_t index = 0;
      std::memcpy(&index, indices + e * sizeof index, sizeof index);
      if (index >= to.size() / sizeof(T)) refuse();
      std::memcpy(to.data() + index * sizeof(T), values + e * sizeof(T), sizeof(T));
    }
  }

 private:
  static constexpr std::uint32_t kRaw = 0xFFFFFFFF;
  static constexpr std::size_t kEvent = sizeof(std::uint32_t) + sizeof(T);

  // More would be no shorter than the field.
  static std::size_t most_events(std::size_t count) { return count * sizeof(T) / kEvent; }
  // By its bits: a negative zero is an event.
  static bool is_zero(const std::byte* element) {
    static constexpr T kZero = 0;
    return std::memcmp(element, &kZero, sizeof kZero) == 0;
  }
  static void write_count(std::span<std::byte> to, std::uint32_t count) {
    std::memcpy(to.data(), &count, sizeof count);
  }
  [[noreturn]] static void refuse() {
    fail(ErrorCode::io, "codec events: the encoded field is damaged");
  }

  std::int64_t percent_;
};

}  // namespace

std::unique_ptr<Codec> make_events(Element element, std::string_view parameter) {
  const std::int64_t cap = parameter.empty() ? 100 : codec_number("events", parameter, 0, 100);
  return for_element<Events>("events", element, cap);
}

}  // namespace ebb
