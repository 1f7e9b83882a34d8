// SPDX-License-Identifier: Apache-2.0
// Takes a file's bytes from front to back and refuses to go past their end. Private.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ebb/core/error.h"

namespace ebb {

class ByteReader {
 public:
  // `name` is the file's, for messages; both must outlive the reader.
  ByteReader(std::span<const std::byte> bytes, std::string_view name)
      : bytes_(bytes), name_(name) {}

  std::size_t at() const { return at_; }
  std::size_t left() const { return bytes_.size() - at_; }
  std::string_view name() const { return name_; }

  std::span<const std::byte> take(std::size_t count) {
    if (count > left()) {
      refuse("ends too early: ", count, " bytes are needed at byte ", at_, ", ", left(),
             " are left");
    }
    at_ += count;
    return bytes_.subspan(at_ - count, count);
  }
  std::string_view text(std::size_t count) {
    const std::span<const std::byte> taken = take(count);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }

  template <std::unsigned_integral T>
  T little() {
    const std::span<const std::byte> taken = take(sizeof(T));
    std::uint64_t value = 0;
    for (std::size_t i = sizeof(T); i-- > 0;) value = value << 8 | std::to_integer<T>(taken[i]);
    return static_cast<T>(value);
  }
  template <std::unsigned_integral T>
  T big() {
    std::uint64_t value = 0;
    for (const std::byte byte : take(sizeof(T))) value = value << 8 | std::to_integer<T>(byte);
    return static_cast<T>(value);
  }

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(ErrorCode::invalid_argument, name_, ": ", parts...);
  }

 private:
  std::span<const std::byte> bytes_;
  std::string_view name_;
  std::size_t at_ = 0;
};

}  // namespace ebb
