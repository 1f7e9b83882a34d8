// SPDX-License-Identifier: Apache-2.0
// Slow tiers, and the store that moves items to them and back behind the caller's computation.
#include "ebb/store/store.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ebb/core/error.h"
#include "ebb/run/profile.h"
#include "python/core/topics.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace ebb::python {
namespace {

// A Store that any thread may call, one after the other, and that refuses what a Store leaves to
// its caller to know: slots and tickets that are not there, memory of no address, two transfers of
// one item at a time.
class PythonStore {
 public:
  using Need = std::tuple<Bytes, Bytes, std::size_t>;  // peak, largest, items

  PythonStore(const std::vector<SlowTier>& tiers, const std::vector<Need>& needs,
              const std::optional<Ledger>& ledger, std::uintptr_t address, Bytes bytes)
      : slots_(tiers.size()), names_(tiers.size()) {
    for (std::size_t i = 0; i < tiers.size(); ++i) names_[i] = tiers[i].name;
    std::vector<TierNeeds> all;
    for (const auto& [peak, largest, items] : needs) {
      all.push_back({.peak = peak, .largest = largest, .items = items, .encode = {}, .decode = {}});
    }
    store_ = std::make_unique<Store>(tiers, all, ledger.value_or(Ledger()), span(address, bytes));
  }

  std::int32_t add(int tier, Bytes bytes) {
    const Turn turn(*this);
    check_tier(tier);
    if (bytes < 0) {
      fail(ErrorCode::invalid_argument, "Store.add: ", bytes, " bytes; there must be 0 or more");
    }
    const Store::Slot slot = store_->add(tier, bytes);
    auto& slots = slots_[static_cast<std::size_t>(tier)];
    const auto index = static_cast<std::size_t>(slot);
    if (slots.size() <= index) slots.resize(index + 1);
    slots[index] = {.held = true, .moving = false};
    return slot;
  }

  void drop(int tier, std::int32_t slot) {
    const Turn turn(*this);
    SlotUse& item = item_of(tier, slot);
    store_->drop(tier, slot);
    item = {};
  }

  std::int32_t put(int tier, std::int32_t slot, std::uintptr_t address, Bytes bytes,
                   nb::object keep) {
    return start(tier, slot, address, bytes, std::move(keep), true);
  }
  std::int32_t get(int tier, std::int32_t slot, std::uintptr_t address, Bytes bytes,
                   nb::object keep) {
    return start(tier, slot, address, bytes, std::move(keep), false);
  }

  bool done(std::int32_t ticket) {
    const Turn turn(*this);
    transfer_of(ticket);
    return store_->done(ticket);
  }

  std::tuple<double, double, Bytes> wait(std::int32_t ticket) {
    nb::object kept;  // released after the turn, with Python's lock
    const Turn turn(*this);
    PendingTransfer& transfer = transfer_of(ticket);
    transfer.under_way = false;
    kept = std::move(transfer.keep);
    slots_[static_cast<std::size_t>(transfer.tier)][static_cast<std::size_t>(transfer.slot)]
        .moving = false;
    const Store::Times times = store_->wait(ticket);
    return {times.start, times.end, times.bytes};
  }

  bool full() {
    const Turn turn(*this);
    return store_->full();
  }
  Bytes held(int tier) {
    const Turn turn(*this);
    check_tier(tier);
    return store_->held(tier);
  }

  void close() {
    std::array<nb::object, kTickets> kept;
    const Turn turn(*this, true);
    store_.reset();
    for (std::size_t i = 0; i < kTickets; ++i) {
      transfers_[i].under_way = false;
      kept[i] = std::move(transfers_[i].keep);
    }
  }

 private:
  static constexpr std::size_t kTickets = 64;

  struct SlotUse {
    bool held = false, moving = false;
  };
  struct PendingTransfer {
    bool under_way = false;
    int tier = 0;
    Store::Slot slot = 0;
    nb::object keep;
  };

  // One call at a time. Python's lock is given up first: who waits here must not hold it.
  class Turn {
   public:
    explicit Turn(PythonStore& store, bool closing = false) : lock_(store.mutex_) {
      if (!store.store_ && !closing) {
        fail(ErrorCode::invalid_argument, "Store: it is closed");
      }
    }

   private:
    nb::gil_scoped_release python_;
    std::scoped_lock<std::mutex> lock_;
  };

  static std::span<std::byte> span(std::uintptr_t address, Bytes bytes) {
    if (bytes < 0 || (address == 0 && bytes > 0)) {
      fail(ErrorCode::invalid_argument, "Store: ", bytes, " bytes at address ", address,
           "; an item has an address and 0 bytes or more");
    }
    return {reinterpret_cast<std::byte*>(address), static_cast<std::size_t>(bytes)};
  }

  void check_tier(int tier) const {
    if (tier >= 0 && static_cast<std::size_t>(tier) < slots_.size()) return;
    fail(ErrorCode::invalid_argument, "Store: no tier ", tier, "; there are ", slots_.size());
  }

  // A slot that nothing moves.
  SlotUse& item_of(int tier, std::int32_t slot) {
    check_tier(tier);
    auto& slots = slots_[static_cast<std::size_t>(tier)];
    const auto index = static_cast<std::size_t>(slot);
    if (slot < 0 || index >= slots.size() || !slots[index].held) {
      fail(ErrorCode::invalid_argument, "Store: tier '", names_[static_cast<std::size_t>(tier)],
           "' has no slot ", slot, "; add gives one");
    }
    if (slots[index].moving) {
      fail(ErrorCode::invalid_argument, "Store: a transfer of slot ", slot, " of tier '",
           names_[static_cast<std::size_t>(tier)], "' is under way; wait for it");
    }
    return slots[index];
  }

  PendingTransfer& transfer_of(std::int32_t ticket) {
    const auto index = static_cast<std::size_t>(ticket);
    if (ticket < 0 || index >= kTickets || !transfers_[index].under_way) {
      fail(ErrorCode::invalid_argument, "Store: no transfer has ticket ", ticket,
           "; put and get give them, and each is waited for once");
    }
    return transfers_[index];
  }

  std::int32_t start(int tier, std::int32_t slot, std::uintptr_t address, Bytes bytes,
                     nb::object keep, bool writes) {
    const Turn turn(*this);
    SlotUse& item = item_of(tier, slot);
    const std::span<std::byte> memory = span(address, bytes);
    const Store::Ticket ticket =
        writes ? store_->put(tier, slot, memory) : store_->get(tier, slot, memory);
    item.moving = true;
    PendingTransfer& transfer = transfers_[static_cast<std::size_t>(ticket)];
    transfer.under_way = true;
    transfer.tier = tier;
    transfer.slot = slot;
    transfer.keep = std::move(keep);
    return ticket;
  }

  std::mutex mutex_;
  std::vector<std::vector<SlotUse>> slots_;
  std::vector<std::string> names_;
  std::array<PendingTransfer, kTickets> transfers_;
  std::unique_ptr<Store> store_;  // last: gone before what its transfers keep
};

FileEngine engine_of(const std::string& word) {
  if (word == "any") return FileEngine::any;
  if (word == "uring") return FileEngine::uring;
  if (word == "threads") return FileEngine::threads;
  fail(ErrorCode::invalid_argument, "file_tier: the engine is '", word,
       "'; it must be any, uring or threads");
}

}  // namespace

void bind_store(nb::module_& module) {
  nb::class_<SlowTier>(module, "SlowTier")
      .def_ro("name", &SlowTier::name)
      .def_ro("capacity", &SlowTier::capacity);
  module.def("memory_tier", &memory_tier, "capacity"_a, "name"_a = "ram");
  module.def(
      "file_tier",
      [](std::string directory, Bytes capacity, std::string name, const std::string& engine,
         bool direct) {
        return file_tier(std::move(directory), capacity, std::move(name),
                         {.engine = engine_of(engine), .direct = direct});
      },
      "directory"_a, "capacity"_a, "name"_a = "disk", "engine"_a = "any", "direct"_a = true);
  // Writes and reads items of that size for about that long.
  module.def(
      "profile_tier",
      [](const SlowTier& tier, Bytes item, double seconds) {
        return profile_tier(tier, item, {.tier_seconds = seconds});
      },
      "tier"_a, "item"_a, "seconds"_a = 0.3, nb::call_guard<nb::gil_scoped_release>());
  nb::class_<PythonStore>(
      module, "Store",
      "Items in slow tiers, put and got while the caller computes. Memory is an "
      "address and a size; `keep` is any object that is kept until the ticket "
      "has been waited for.")
      .def(nb::init<const std::vector<SlowTier>&, const std::vector<PythonStore::Need>&,
                    const std::optional<Ledger>&, std::uintptr_t, Bytes>(),
           "tiers"_a, "needs"_a, "ledger"_a = nb::none(), "address"_a = 0, "bytes"_a = 0)
      .def("add", &PythonStore::add, "tier"_a, "bytes"_a)
      .def("drop", &PythonStore::drop, "tier"_a, "slot"_a)
      .def("put", &PythonStore::put, "tier"_a, "slot"_a, "address"_a, "bytes"_a,
           "keep"_a = nb::none())
      .def("get", &PythonStore::get, "tier"_a, "slot"_a, "address"_a, "bytes"_a,
           "keep"_a = nb::none())
      .def("done", &PythonStore::done, "ticket"_a)
      .def("wait", &PythonStore::wait, "ticket"_a)
      .def("held", &PythonStore::held, "tier"_a)
      .def_prop_ro("full", &PythonStore::full)
      .def("close", &PythonStore::close);
}

}  // namespace ebb::python
