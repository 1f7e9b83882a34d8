// SPDX-License-Identifier: Apache-2.0
#include "ebb/store/store.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "ebb/core/checksum.h"
#include "ebb/core/clock.h"
#include "ebb/core/error.h"
#include "ebb/device/arena.h"
#include "ebb/device/buffer.h"

namespace ebb {
namespace {

constexpr std::size_t kInFlight = 64;
constexpr Bytes kMoveChunk = 1 << 20;

}  // namespace

// How an item lies in its medium.
struct Store::Stored {
  Bytes bytes = 0;
  bool there = false;
  bool declined = false;  // the transform had nothing shorter
  std::size_t raw = 0;    // before the transform; 0: it came as it is
  std::uint32_t crc = 0;
};

// Threads see transfers only: items and offsets belong to the store's caller.
struct Store::Transfer {
  enum : int { idle, under_way, done };
  std::atomic<int> state = idle;
  int tier = 0;
  Slot slot = 0;
  bool writes = false;
  bool transform = false;
  Bytes offset = 0, room = 0;  // of the slot
  std::span<std::byte> item;
  Stored stored;  // given for reads, found by writes
  Times times;
  std::exception_ptr error;
};

// One direction of one tier: a queue and the threads that serve it.
class Store::Lane {
 public:
  Lane(int workers, std::function<void(Transfer&, int)> serve) : serve_(std::move(serve)) {
    try {
      for (int i = 0; i < workers; ++i) threads_.emplace_back([this, i] { work(i); });
    } catch (const std::exception& error) {
      close();
      fail(ErrorCode::out_of_memory, "the system gives no thread for transfers: ", error.what());
    }
  }
  ~Lane() { close(); }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  void push(Transfer& transfer) {
    {
      const std::scoped_lock lock(mutex_);
      queue_[(first_ + queued_) % kInFlight] = &transfer;
      ++queued_;
    }
    wake_.notify_one();
  }

  // Until nothing is queued or under way.
  void drain() {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return queued_ == 0 && busy_ == 0; });
  }

 private:
  // What is queued is served first.
  void close() {
    {
      const std::scoped_lock lock(mutex_);
      closing_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void work(int worker) {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return closing_ || queued_ > 0; });
      if (queued_ == 0) return;
      Transfer& transfer = *queue_[first_];
      first_ = (first_ + 1) % kInFlight;
      --queued_;
      ++busy_;
      lock.unlock();
      serve_(transfer, worker);
      // In one order with notify_all's look at the count of waiters, or one may sleep for ever.
      transfer.state.store(Transfer::done, std::memory_order_seq_cst);
      transfer.state.notify_all();
      lock.lock();
      --busy_;
      if (queued_ == 0 && busy_ == 0) idle_.notify_all();
    }
  }

  std::function<void(Transfer&, int)> serve_;
  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::array<Transfer*, kInFlight> queue_{};  // a ring: a store has no more transfers than that
  std::size_t first_ = 0, queued_ = 0;
  std::vector<std::thread> threads_;
  int busy_ = 0;
  bool closing_ = false;
};

struct Store::OpenTier {
  OpenTier(const SlowTier& slow, const TierNeeds& tier_needs, const Ledger& ledger,
           std::span<std::byte> memory, double store_opened)
      : needs(tier_needs),
        checksum(slow.checksum),
        at_once(slow.at_once),
        opened(store_opened),
        medium(open(slow, needs, ledger)),
        arena(needs.peak,
              [this](Arena::Block, Bytes from, Bytes to, Bytes bytes) { move(from, to, bytes); }) {
    medium->reserve(needs.peak);
    medium->expect(memory);
    arena.reserve(needs.items);
    items.reserve(needs.items);
    unused.reserve(needs.items);
    const int workers = slow.workers;
    for (int i = 0; needs.encode && i < 2 * workers; ++i) {
      bounce.emplace_back(ledger, slow.name + " codec", needs.largest);
    }
    writes = std::make_unique<Lane>(workers, [this](Transfer& t, int w) { serve(t, w); });
    reads = std::make_unique<Lane>(workers,
                                   [this, workers](Transfer& t, int w) { serve(t, workers + w); });
  }

  struct StoredItem {
    Arena::Block block = Arena::kNone;
    Stored stored;
  };
  StoredItem& at(Slot slot) { return items[static_cast<std::size_t>(slot)]; }

  void start(Transfer& t) {
    const bool transforms = t.transform && needs.encode;
    if (!transforms && static_cast<Bytes>(t.item.size()) <= at_once) {
      serve(t, 0);
      t.state.store(Transfer::done, std::memory_order_relaxed);
      return;
    }
    t.state.store(Transfer::under_way, std::memory_order_relaxed);
    (t.writes ? writes : reads)->push(t);
  }

  void serve(Transfer& t, int worker) {
    t.times.start = seconds_now() - opened;
    try {
      if (t.writes) {
        write(t, worker);
      } else {
        read(t, worker);
      }
    } catch (...) {
      t.error = std::current_exception();
    }
    t.times.bytes = t.stored.bytes;
    t.times.end = seconds_now() - opened;
  }

  void write(Transfer& t, int worker) {
    std::span<std::byte> bytes = t.item;
    t.stored = {};
    if (t.transform && needs.encode) {
      const auto room =
          bounce[static_cast<std::size_t>(worker)].at(0, static_cast<Bytes>(bytes.size()));
      const Bytes shorter = needs.encode(bytes, room);
      t.stored.declined = shorter == 0;
      if (shorter > 0) t.stored.raw = bytes.size();
      if (shorter > 0) bytes = room.first(static_cast<std::size_t>(shorter));
    }
    if (static_cast<Bytes>(bytes.size()) > t.room) {
      fail(ErrorCode::invalid_argument, "Store: an item of ", bytes.size(), " bytes in a slot of ",
           t.room);
    }
    t.stored.bytes = static_cast<Bytes>(bytes.size());
    if (checksum) t.stored.crc = crc32c(bytes);
    medium->write(t.offset, bytes);
    t.stored.there = true;
  }

  void read(Transfer& t, int worker) {
    if (!t.stored.there) {
      fail(ErrorCode::io, "nothing has been written at byte ", t.offset, " that could be read");
    }
    const bool decodes = t.transform && needs.decode && !t.stored.declined;
    const auto size = static_cast<std::size_t>(t.stored.bytes);
    if (!decodes && size > t.item.size()) {
      fail(ErrorCode::io, "what was written at byte ", t.offset, " has ", size,
           " bytes; there is room for ", t.item.size());
    }
    const std::span<std::byte> bytes =
        decodes ? bounce[static_cast<std::size_t>(worker)].at(0, t.stored.bytes)
                : t.item.first(size);
    medium->read(t.offset, bytes);
    if (checksum && crc32c(bytes) != t.stored.crc) {
      fail(ErrorCode::io, "what was read at byte ", t.offset,
           " is not what was written there: checksums differ");
    }
    if (!decodes) return;
    // What was put smaller than its slot comes back so.
    const auto to = t.stored.raw > 0 ? t.item.first(std::min(t.stored.raw, t.item.size())) : t.item;
    if (needs.decode(bytes, to) != static_cast<Bytes>(to.size())) {
      fail(ErrorCode::io, "what was read at byte ", t.offset, " does not decode to ", to.size(),
           " bytes");
    }
  }

  // Closes gaps between items; rare. Nothing may be under way then. Items stand at the arena's low
  // end, so they move down only, and first parts first is right where the ranges overlap.
  void move(Bytes from, Bytes to, Bytes bytes) {
    writes->drain();
    reads->drain();
    chunk.resize(static_cast<std::size_t>(std::min(needs.peak, kMoveChunk)));
    for (Bytes done = 0; done < bytes;) {
      const Bytes part = std::min(kMoveChunk, bytes - done);
      const auto span = std::span(chunk).first(static_cast<std::size_t>(part));
      medium->read(from + done, span);
      medium->write(to + done, span);
      done += part;
    }
  }

  TierNeeds needs;
  bool checksum;
  Bytes at_once;
  double opened;
  std::unique_ptr<Medium> medium;
  Arena arena;
  std::vector<StoredItem> items;
  std::vector<Slot> unused;
  std::vector<Buffer> bounce;    // per worker: writers, then readers
  std::vector<std::byte> chunk;  // for move, once it is needed
  std::unique_ptr<Lane> writes, reads;

 private:
  static std::unique_ptr<Medium> open(const SlowTier& slow, const TierNeeds& needs,
                                      const Ledger& ledger) {
    if (!slow.open || slow.workers < 1) {
      fail(ErrorCode::invalid_argument, "tier '", slow.name, "': it has ",
           slow.open ? "no workers; 1 or more are needed" : "nothing that opens it");
    }
    if (!needs.encode != !needs.decode || needs.peak < 0 || needs.largest < 0) {
      fail(ErrorCode::invalid_argument, "tier '", slow.name,
           "': its needs are not negative, and it encodes and decodes or does neither");
    }
    if (needs.peak > slow.capacity) {
      fail(ErrorCode::out_of_budget, "tier '", slow.name, "': ", format_bytes(needs.peak),
           " are needed, its capacity is ", format_bytes(slow.capacity));
    }
    return slow.open(ledger);
  }
};

Store::Store(const std::vector<SlowTier>& tiers, const std::vector<TierNeeds>& needs,
             const Ledger& ledger, std::span<std::byte> memory)
    : transfers_(std::make_unique<Transfer[]>(kInFlight)), opened_(seconds_now()) {
  if (tiers.size() != needs.size()) {
    fail(ErrorCode::invalid_argument, "Store: ", tiers.size(), " tiers, and needs for ",
         needs.size());
  }
  for (std::size_t i = 0; i < tiers.size(); ++i) {
    tiers_.push_back(std::make_unique<OpenTier>(tiers[i], needs[i], ledger, memory, opened_));
  }
  for (std::size_t i = kInFlight; i > 0; --i) idle_.push_back(static_cast<Ticket>(i - 1));
}

Store::~Store() = default;

Store::Slot Store::add(int tier, Bytes bytes) {
  OpenTier& t = *tiers_[static_cast<std::size_t>(tier)];
  if (t.needs.encode && bytes > t.needs.largest) {
    fail(ErrorCode::invalid_argument, "Store::add: ", format_bytes(bytes),
         "; the largest item was to be ", format_bytes(t.needs.largest));
  }
  if (t.unused.empty()) {
    t.items.emplace_back();
    t.unused.push_back(static_cast<Slot>(t.items.size()) - 1);
  }
  const Arena::Block block = t.arena.add(bytes, Arena::End::low);
  const Slot slot = t.unused.back();
  t.unused.pop_back();
  t.at(slot) = {block, {}};
  return slot;
}

void Store::drop(int tier, Slot slot) {
  OpenTier& t = *tiers_[static_cast<std::size_t>(tier)];
  t.arena.remove(t.at(slot).block);
  t.unused.push_back(slot);
}

Store::Ticket Store::put(int tier, Slot slot, std::span<const std::byte> item, bool transform) {
  return start(tier, slot, {const_cast<std::byte*>(item.data()), item.size()}, true, transform);
}

Store::Ticket Store::get(int tier, Slot slot, std::span<std::byte> item, bool transform) {
  return start(tier, slot, item, false, transform);
}

Store::Ticket Store::start(int tier, Slot slot, std::span<std::byte> item, bool writes,
                           bool transform) {
  OpenTier& t = *tiers_[static_cast<std::size_t>(tier)];
  const Arena::Block block = t.at(slot).block;
  // What a transform makes of an item is seen later.
  const bool encodes = transform && t.needs.encode;
  if (writes && !encodes && static_cast<Bytes>(item.size()) > t.arena.bytes(block)) {
    fail(ErrorCode::invalid_argument, "Store: an item of ", item.size(), " bytes in a slot of ",
         t.arena.bytes(block));
  }
  if (full()) {
    fail(ErrorCode::invalid_argument, "Store: ", kInFlight,
         " transfers are under way; wait for one");
  }
  const Ticket ticket = idle_.back();
  idle_.pop_back();
  Transfer& transfer = transfers_[static_cast<std::size_t>(ticket)];
  transfer.tier = tier;
  transfer.slot = slot;
  transfer.writes = writes;
  transfer.transform = transform;
  transfer.offset = t.arena.offset(block);
  transfer.room = t.arena.bytes(block);
  transfer.item = item;
  transfer.stored = t.at(slot).stored;
  transfer.error = nullptr;
  t.start(transfer);
  return ticket;
}

bool Store::done(Ticket ticket) const {
  const Transfer& transfer = transfers_[static_cast<std::size_t>(ticket)];
  return transfer.state.load(std::memory_order_acquire) == Transfer::done;
}

void Store::forget(Ticket ticket) noexcept {
  Transfer& transfer = transfers_[static_cast<std::size_t>(ticket)];
  transfer.state.wait(Transfer::under_way, std::memory_order_acquire);
  transfer.state.store(Transfer::idle, std::memory_order_relaxed);
  if (transfer.writes) {
    tiers_[static_cast<std::size_t>(transfer.tier)]->at(transfer.slot).stored = transfer.stored;
  }
  idle_.push_back(ticket);
}

Store::Times Store::wait(Ticket ticket) {
  forget(ticket);
  Transfer& transfer = transfers_[static_cast<std::size_t>(ticket)];
  if (transfer.error) std::rethrow_exception(std::exchange(transfer.error, nullptr));
  return transfer.times;
}

Bytes Store::held(int tier) const { return tiers_[static_cast<std::size_t>(tier)]->arena.used(); }
double Store::now() const { return seconds_now() - opened_; }

}  // namespace ebb
