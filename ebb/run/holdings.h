// SPDX-License-Identifier: Apache-2.0
// What a run holds while it executes a plan: the live state, the adjoint, states and tapes in fast
// and in slow tiers, and the transfers between them. One arena and one store; nothing else is
// allocated. It knows bytes and places; what they mean is the executor's.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ebb/core/step_table.h"
#include "ebb/device/arena.h"
#include "ebb/device/buffer.h"
#include "ebb/plan/action.h"
#include "ebb/run/measured.h"
#include "ebb/run/step.h"
#include "ebb/run/trace.h"
#include "ebb/store/store.h"

namespace ebb {

// One item at one place.
struct Holding {
  Arena::Block block = Arena::kNone;  // in fast
  Store::Slot slot = -1;              // in a slow tier
  std::int32_t in = -1;               // the transfer that brings it
  std::int32_t out = -1;              // the last transfer that takes it elsewhere
  bool broken = false;                // its transfer failed; the bytes are not to be used
};

struct HoldingsSetup {
  Bytes fast = 0;   // size of the arena
  Bytes state = 0;  // the live state, at most
  Bytes adjoint = 0;
  std::vector<SlowTier> tiers = {};
  std::vector<TierNeeds> needs = {};
  Ledger ledger = Ledger();  // for the arena
  Ledger host = Ledger();    // for memory of the tiers
  Trace* trace = nullptr;
};

class Holdings {
 public:
  explicit Holdings(const HoldingsSetup& setup);
  ~Holdings();
  Holdings(const Holdings&) = delete;
  Holdings& operator=(const Holdings&) = delete;

  // Forgets everything, waiting for what is under way; the memory stays.
  void clear() noexcept;
  // Forgets all items, and goes on with other memory and tiers, as many as before. The adjoint and
  // what was counted stay. Throws like the constructor; then it can only be destroyed.
  void reopen(const HoldingsSetup& setup);
  double now() const { return earlier_ + store_->now(); }

  // The live state. Its room is taken by need_work and given back by free_work.
  void need_work();
  void free_work();
  bool has_work() const { return work_.block != Arena::kNone; }
  std::byte* work() const { return at(work_.block); }
  Holding& work_holding() { return work_; }
  void need_adjoint();
  std::byte* adjoint() const { return at(adjoint_); }

  // Memory for the length of one call; null for 0 bytes.
  std::byte* take_scratch(Bytes bytes);
  void give_scratch();

  // An item at a place. A state inside a tape goes by the tape's name.
  struct Name {
    Item item = Item::state;
    Place place = Place::work;
    std::int64_t step = 0;
  };
  // null: not held there. A tape in fast has a Holding only if it has or had transfers.
  Holding* find(const Name& name);
  // The same for what must be there; that of a tape in fast is made on first use.
  Holding& holding(const Name& name);
  // A state in fast, or a state or a tape in a tier.
  Holding& add(const Name& name, Bytes bytes);
  std::byte* bytes_of(const Holding& holding) const { return at(holding.block); }
  void drop(const Name& name);

  // Tapes in fast lie in runs, as they were recorded or brought.
  struct TapeRun {
    std::int64_t from = 0, to = 0;
    Tapes tapes;  // of from
  };
  void add_tapes(std::int64_t from, std::int64_t to, Bytes each);
  bool has_tape(std::int64_t step) const;
  // The run of tapes that ends with `last`, at most from `from` on.
  TapeRun tapes_up_to(std::int64_t from, std::int64_t last) const;
  // The transfers of one tape in fast; made on first use.
  Holding& tape_holding(std::int64_t step);
  void visit_tape_holdings(std::int64_t from, std::int64_t to,
                           const std::function<void(std::int64_t, Holding&)>& visit) {
    tapes_[0].visit(from, to, visit);
  }
  // Frees tapes that no transfer uses any more.
  void drop_tapes(std::int64_t from, std::int64_t to);

  // Starts a transfer between fast memory and a tier. `from` null: memory that is not overwritten.
  // `counted` is what the item weighs in the plan.
  void put(const Name* from, const Name& to, std::span<const std::byte> bytes, bool transform,
           Bytes counted);
  void get(const Name& from, const Name& to, std::span<std::byte> bytes, bool transform,
           Bytes counted);
  // Waits until the item has arrived; and until nothing takes it elsewhere either.
  void wait_ready(Holding& holding);
  void wait_free(Holding& holding);
  // Reads and waits. false: it failed, and the source is broken.
  bool read_now(const Name& from, std::span<std::byte> bytes, bool transform, Bytes counted);

  // Every state that is held and not known to be broken, and every run of tapes in fast.
  void visit_states(const std::function<void(Place, std::int64_t)>& visit);
  void visit_tapes(const std::function<void(std::int64_t from, std::int64_t to)>& visit) const;

  Bytes used() const { return arena_.used(); }
  // Bytes of the states and tapes in fast.
  Bytes items() const { return items_; }
  Bytes held(int tier) const { return store_->held(tier); }
  Bytes closed_gaps() const { return closed_earlier_ + arena_.moved(); }

  const std::vector<TierTraffic>& traffic() const { return traffic_; }
  double stalled() const { return stalled_; }
  // The first failures, in words.
  const std::vector<std::string>& failures() const { return failures_; }
  std::int64_t failed() const { return failed_; }
  // A tier that has failed more often than chance explains, and is not known as such to the caller
  // yet: each is told once. None: -1.
  int take_failed_tier();

 private:
  struct TapeRange {
    std::int64_t from, to;
    Arena::Block block;
    Bytes each;
  };
  struct ItemMove {
    Store::Ticket ticket = -1;  // -1: not in use
    std::int64_t number = 0;    // in order of their starts
    Name source, destination;
    bool has_source = false;
    bool writes = false;
    std::int32_t earlier_out = -1;  // of the same source
    Bytes bytes = 0;
  };

  std::byte* at(Arena::Block block) const { return memory_.data() + arena_.offset(block); }
  StepTable<Holding>& table(Item item, Place place) {
    return (item == Item::state ? states_ : tapes_)[static_cast<std::size_t>(place.id - 1)];
  }
  void reserve();
  void forget_items() noexcept;
  Arena made_arena();
  std::int32_t start(const Name* from, const Name& to, Bytes bytes, bool writes);
  void settle(std::int32_t move);
  void unlink(std::int32_t move);
  void settle_all();
  std::exception_ptr finish(ItemMove& move, Holding& holding);
  void count(const ItemMove& move, const Store::Times& times);
  void note_failure(const ItemMove& move, const char* what);
  std::size_t range_after(std::int64_t step) const;

  HoldingsSetup setup_;
  Buffer memory_;
  Arena arena_;
  std::unique_ptr<Store> store_;
  Holding work_;
  Arena::Block adjoint_ = Arena::kNone, scratch_ = Arena::kNone;
  Bytes items_ = 0;
  std::vector<StepTable<Holding>> states_, tapes_;  // [0]: fast, then the tiers
  std::vector<TapeRange> ranges_;                   // tapes in fast, ascending
  std::vector<ItemMove> moves_;
  std::int64_t numbered_ = 0;
  std::vector<TierTraffic> traffic_;
  double stalled_ = 0;
  std::int64_t failed_ = 0;
  std::vector<std::int64_t> failed_in_;  // of these, in each tier; below 0: it was told
  std::vector<std::string> failures_;
  double earlier_ = 0;        // seconds before the store was opened anew
  Bytes closed_earlier_ = 0;  // bytes moved before that
};

}  // namespace ebb
