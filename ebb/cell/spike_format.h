// SPDX-License-Identifier: Apache-2.0
// How spikes lie in states and tapes: as bits, or as a list where few units may fire and the list is
// smaller. Its size is known beforehand either way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ebb/core/bits.h"

namespace ebb {

class SpikeFormat {
 public:
  SpikeFormat() = default;
  // Up to `most` of `units` fire at once.
  SpikeFormat(std::int64_t units, std::int64_t most)
      : units_(units),
        is_list_(units <= 65'535 && (most + 1) * kId < words_of(units) * 8),
        most_(most) {}

  bool is_list() const { return is_list_; }
  // Of one sample.
  std::int64_t bytes() const { return is_list_ ? (most_ + 1) * kId : words_of(units_) * 8; }

  void write(const std::uint64_t* bits, std::byte* to) const {
    if (!is_list_) {
      std::memcpy(to, bits, static_cast<std::size_t>(bytes()));
      return;
    }
    std::uint16_t count = 0;
    std::memset(to, 0, static_cast<std::size_t>(bytes()));
    for (std::int64_t w = 0; w < words_of(units_); ++w) {
      for_each_bit(bits[w], w * 64, [&](std::int64_t unit) {
        const auto id = static_cast<std::uint16_t>(unit);
        ++count;
        std::memcpy(to + count * kId, &id, kId);
      });
    }
    std::memcpy(to, &count, kId);
  }
  void read(const std::byte* from, std::uint64_t* bits) const {
    if (!is_list_) {
      std::memcpy(bits, from, static_cast<std::size_t>(bytes()));
      return;
    }
    std::memset(bits, 0, static_cast<std::size_t>(words_of(units_)) * 8);
    std::uint16_t count = 0;
    std::memcpy(&count, from, kId);
    for (std::int64_t i = 1; i <= count && i <= most_; ++i) {
      std::uint16_t unit = 0;
      std::memcpy(&unit, from + i * kId, kId);
      if (unit < units_) bits[unit / 64] |= std::uint64_t{1} << (unit % 64);
    }
  }

 private:
  static constexpr std::int64_t kId = sizeof(std::uint16_t);
  std::int64_t units_ = 0;
  bool is_list_ = false;
  std::int64_t most_ = 0;
};

}  // namespace ebb
