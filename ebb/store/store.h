// SPDX-License-Identifier: Apache-2.0
// The store: items in slow tiers, put and got behind the caller's back. It queues transfers, runs
// them on threads of its own, first come first served in each direction of each tier (items that
// the tier moves at once overtake), and checks what comes back. Plans, codecs and what the items
// mean are the caller's. One thread at a time calls a store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ebb/core/bytes.h"
#include "ebb/device/ledger.h"
#include "ebb/store/slow_tier.h"

namespace ebb {

// Changes an item on its way out or in; returns the bytes written to `to`. On the way out `to` is as
// large as the item, and 0 says that the item did not become smaller: then it goes as it is. Runs on
// the store's threads; what it throws is the transfer's error.
using Transform = std::function<Bytes(std::span<const std::byte> from, std::span<std::byte> to)>;

// What a tier needs to know before a run.
struct TierNeeds {
  Bytes peak = 0;         // the most bytes it holds at once
  Bytes largest = 0;      // the largest item
  std::size_t items = 0;  // the most items at once; more work too, but allocate as they come
  Transform encode = nullptr, decode = nullptr;  // both or neither
};

class Store {
 public:
  // A transfer under way. Each is waited for exactly once.
  using Ticket = std::int32_t;
  // An item in a tier.
  using Slot = std::int32_t;

  // Opens the tiers and reserves what they need. `memory` is where items come from and go to. After
  // that nothing is allocated within the needs, unless something goes wrong. Throws Error(io),
  // Error(out_of_budget), and Error(invalid_argument) for tiers and needs that make no sense.
  Store(const std::vector<SlowTier>& tiers, const std::vector<TierNeeds>& needs,
        const Ledger& ledger, std::span<std::byte> memory);
  ~Store();  // waits for transfers under way
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // A place for an item of up to that size. Throws Error(out_of_budget) beyond the tier's needs.
  Slot add(int tier, Bytes bytes);
  // No transfer of the item may be under way.
  void drop(int tier, Slot slot);

  // As many transfers are under way as may be: wait for one before the next put or get.
  bool full() const { return idle_.empty(); }
  // Both return at once. The item must stay where it is, and for put unchanged, until the ticket has
  // been waited for. An item larger than its slot, as it is or as the transform makes it, and a
  // transfer too many are Error(invalid_argument). With `transform` false the tier's transforms are
  // left out.
  Ticket put(int tier, Slot slot, std::span<const std::byte> item, bool transform = true);
  // Only after the put of that slot has been waited for. `item` may be larger than what was put: its
  // first bytes are read. With another `transform` than put's one gets encoded bytes, or decodes what
  // was put encoded. What was never put, or not with success, is Error(io) at the ticket.
  Ticket get(int tier, Slot slot, std::span<std::byte> item, bool transform = true);

  struct Times {
    double start = 0, end = 0;  // seconds since the store was opened
    Bytes bytes = 0;            // that went to the medium
  };
  bool done(Ticket ticket) const;
  // Throws the transfer's error: Error(io) for a failed or corrupt one.
  Times wait(Ticket ticket);
  // The same for who does not care how it went.
  void forget(Ticket ticket) noexcept;

  // Bytes held in a tier, slots added count in full.
  Bytes held(int tier) const;
  double now() const;

 private:
  class Lane;
  struct Stored;
  struct Transfer;
  struct OpenTier;
  std::unique_ptr<Transfer[]> transfers_;
  std::vector<std::unique_ptr<OpenTier>> tiers_;  // their threads use the transfers
  std::vector<Ticket> idle_;
  double opened_ = 0;

  Ticket start(int tier, Slot slot, std::span<std::byte> item, bool writes, bool transform);
};

}  // namespace ebb
