// SPDX-License-Identifier: Apache-2.0
// A medium: where the bytes of a slow tier lie. It moves them and waits for it; queues, threads,
// checksums and who owns which offset are the store's.
#pragma once

#include <cstddef>
#include <span>

#include "ebb/core/bytes.h"

namespace ebb {

// Where the bytes of a slow tier are: reserves, writes and reads at an offset. Derive from it for your own tier.
class Medium {
 public:
  Medium() = default;
  Medium(const Medium&) = delete;
  Medium& operator=(const Medium&) = delete;
  virtual ~Medium() = default;

  // Called once, before any transfer: offsets 0 .. bytes-1 will be used. Throws Error(io) or
  // Error(out_of_budget) when there is no room for them.
  virtual void reserve(Bytes bytes) = 0;
  // Most transfers will come from and go to this memory, which stays where it is. A hint.
  virtual void expect(std::span<std::byte> memory) { static_cast<void>(memory); }
  // Called from several threads at once, for ranges that do not overlap. Throw Error(io).
  virtual void write(Bytes offset, std::span<const std::byte> bytes) = 0;
  virtual void read(Bytes offset, std::span<std::byte> bytes) = 0;
};

}  // namespace ebb
