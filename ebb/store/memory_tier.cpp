// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "ebb/device/buffer.h"
#include "ebb/store/slow_tier.h"

namespace ebb {
namespace {

// Copied in about the two microseconds that waking a thread costs the caller.
constexpr Bytes kAtOnce = Bytes{16} << 10;

class Memory : public Medium {
 public:
  explicit Memory(const Ledger& ledger) : ledger_(ledger) {}
  void reserve(Bytes bytes) override { buffer_ = Buffer(ledger_, "memory tier", bytes); }
  void write(Bytes offset, std::span<const std::byte> bytes) override {
    if (!bytes.empty()) std::memcpy(buffer_.data() + offset, bytes.data(), bytes.size());
  }
  void read(Bytes offset, std::span<std::byte> bytes) override {
    if (!bytes.empty()) std::memcpy(bytes.data(), buffer_.data() + offset, bytes.size());
  }

 private:
  Ledger ledger_;
  Buffer buffer_;
};

class Nothing : public Medium {
 public:
  void reserve(Bytes) override {}
  void write(Bytes, std::span<const std::byte>) override {}
  void read(Bytes, std::span<std::byte>) override {}
};

}  // namespace

SlowTier memory_tier(Bytes capacity, std::string name) {
  return {.name = std::move(name),
          .capacity = capacity,
          .open = [](const Ledger& ledger) { return std::make_unique<Memory>(ledger); },
          .checksum = false,
          .at_once = kAtOnce};
}

SlowTier null_tier(std::string name) {
  return {.name = std::move(name),
          .open = [](const Ledger&) { return std::make_unique<Nothing>(); },
          .checksum = false,
          .keeps = false,
          .at_once = kUnlimited};
}

}  // namespace ebb
