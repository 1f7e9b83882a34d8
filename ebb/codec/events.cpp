// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "ebb/codec/element_codec.h"
#include "ebb/codec/rows.h"

namespace ebb {
namespace {

using Index = std::uint32_t;

// A count, then the index of every element whose bits are not all zero, then their values. Beyond
// the cap, a share of the elements in percent, a count of kRaw and the field as it is.
template <class T>
class Events : public Codec {
 public:
  Events(std::string_view name, std::int64_t percent)
      : name_(name), percent_(static_cast<std::size_t>(percent)) {}

  Bytes encoded_bytes(Bytes raw) const override {
    element_count(name_, raw, sizeof(T));
    return add_bytes(raw, sizeof(Index));
  }

  Bytes encode(std::span<const std::byte> from, std::span<std::byte> to) const override {
    const std::size_t count = element_count(name_, static_cast<Bytes>(from.size()), sizeof(T));
    if (to.size() < sizeof(Index)) return 0;
    // More events than `most` would be no shorter than the field; indices beyond kRaw do not exist.
    const std::size_t most = count < kRaw ? count * sizeof(T) / kEvent : 0;
    const std::size_t room = (to.size() - sizeof(Index)) / kEvent;
    const std::size_t cap =
        std::min({most, count / 100 * percent_ + count % 100 * percent_ / 100, room});
    std::byte* const indices = to.data() + sizeof(Index);
    const std::size_t found = count < kRaw ? find(from.data(), count, cap, indices) : cap + 1;
    if (found > cap) return keep(from, to);
    std::byte* const values = indices + found * sizeof(Index);
    for (std::size_t e = 0; e < found; ++e) {
      std::memcpy(values + e * sizeof(T), from.data() + index_at(indices, e) * sizeof(T),
                  sizeof(T));
    }
    write_count(to, static_cast<Index>(found));
    return static_cast<Bytes>(sizeof(Index) + found * kEvent);
  }

  void decode(std::span<const std::byte> from, std::span<std::byte> to) const override {
    const std::size_t count = element_count(name_, static_cast<Bytes>(to.size()), sizeof(T));
    Index found = 0;
    if (from.size() < sizeof found) refuse();
    std::memcpy(&found, from.data(), sizeof found);
    const std::byte* const indices = from.data() + sizeof found;
    if (found == kRaw) {
      if (from.size() - sizeof found != to.size()) refuse();
      std::ranges::copy(from.subspan(sizeof found), to.begin());
      return;
    }
    if (from.size() != sizeof found + found * kEvent) refuse();
    const std::byte* const values = indices + found * sizeof(Index);
    std::ranges::fill(to, std::byte{0});
    for (std::size_t e = 0; e < found; ++e) {
      const std::size_t index = index_at(indices, e);
      if (index >= count) refuse();
      std::memcpy(to.data() + index * sizeof(T), values + e * sizeof(T), sizeof(T));
    }
  }

 private:
  using Word = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  static constexpr Index kRaw = std::numeric_limits<Index>::max();
  static constexpr std::size_t kEvent = sizeof(Index) + sizeof(T);

  // By its bits: a negative zero is an event.
  static bool is_event(const std::byte* field, std::size_t i) {
    Word word = 0;
    std::memcpy(&word, field + i * sizeof(T), sizeof word);
    return word != 0;
  }
  static std::size_t index_at(const std::byte* indices, std::size_t e) {
    Index index = 0;
    std::memcpy(&index, indices + e * sizeof index, sizeof index);
    return index;
  }
  static void write_index(std::byte* indices, std::size_t e, std::size_t i) {
    const auto index = static_cast<Index>(i);
    std::memcpy(indices + e * sizeof index, &index, sizeof index);
  }

  // Writes the indices of the events and returns how many there are, or cap + 1 if there are more.
  static std::size_t find(const std::byte* field, std::size_t count, std::size_t cap,
                          std::byte* indices) {
    std::size_t found = 0;
    std::size_t i = 0;
    // While there is room for all of them, each index is written and only counted if it is one: no
    // branch that cannot be predicted.
    for (; i + 8 <= count && found + 8 <= cap; i += 8) {
      for (std::size_t j = i; j < i + 8; ++j) {
        write_index(indices, found, j);
        found += is_event(field, j) ? 1 : 0;
      }
    }
    for (; i < count; ++i) {
      if (!is_event(field, i)) continue;
      if (found == cap) return cap + 1;
      write_index(indices, found, i);
      ++found;
    }
    return found;
  }

  Bytes keep(std::span<const std::byte> from, std::span<std::byte> to) const {
    if (to.size() - sizeof(Index) < from.size()) return 0;
    write_count(to, kRaw);
    std::ranges::copy(from, to.begin() + sizeof(Index));
    return static_cast<Bytes>(sizeof(Index) + from.size());
  }
  static void write_count(std::span<std::byte> to, Index count) {
    std::memcpy(to.data(), &count, sizeof count);
  }
  [[noreturn]] static void refuse() {
    fail(ErrorCode::io, "codec events: the encoded field is damaged");
  }

  std::string_view name_;
  std::size_t percent_;
};

}  // namespace

std::unique_ptr<Codec> make_events(Element element, std::string_view parameter) {
  const std::int64_t cap = parameter.empty() ? 100 : codec_number("events", parameter, 0, 100);
  return for_element<Events>("events", element, cap);
}

}  // namespace ebb
