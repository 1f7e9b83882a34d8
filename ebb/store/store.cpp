// SPDX-License-Identifier: Apache-2.0
#include "ebb/store/store.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "ebb/core/checksum.h"
#include "ebb/core/error.h"
#include "ebb/device/arena.h"
#include "ebb/device/buffer.h"

namespace ebb {
namespace {

constexpr std::size_t kInFlight = 64;
constexpr Bytes kMoveChunk = 1 << 20;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

// How an item lies in its medium.
struct Store::Stored {
  Bytes bytes = 0;
  bool encoded = false;
  std::uint32_t crc = 0;
};

// Threads see transfers only: items and offsets belong to the store's caller.
struct Store::Transfer {
  enum : int { idle, under_way, done };
  std::atomic<int> state = idle;
  int tier = 0;
  Slot slot = 0;
  bool writes = false;
  Bytes offset = 0;
  std::span<std::byte> item;
  Stored stored;  // given for reads, found by writes
  Times times;
  std::exception_ptr error;
};

// One direction of one tier: a queue and the threads that serve it.
class Store::Lane {
 public:
  Lane(int workers, std::function<void(Transfer&, int)> serve) : serve_(std::move(serve)) {
    for (int i = 0; i < workers; ++i) threads_.emplace_back([this, i] { work(i); });
  }
  ~Lane() {
    {
      const std::scoped_lock lock(mutex_);
      closing_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  void push(Transfer& transfer) {
    {
      const std::scoped_lock lock(mutex_);
      queue_.push_back(&transfer);
    }
    wake_.notify_one();
  }

  // Until nothing is queued or under way.
  void drain() {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return queue_.empty() && busy_ == 0; });
  }

 private:
  void work(int worker) {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return closing_ || !queue_.empty(); });
      if (queue_.empty()) return;
      Transfer& transfer = *queue_.front();
      queue_.pop_front();
      ++busy_;
      lock.unlock();
      serve_(transfer, worker);
      transfer.state.store(Transfer::done, std::memory_order_release);
      transfer.state.notify_all();
      lock.lock();
      --busy_;
      if (queue_.empty() && busy_ == 0) idle_.notify_all();
    }
  }

  std::function<void(Transfer&, int)> serve_;
  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::deque<Transfer*> queue_;
  std::vector<std::thread> threads_;
  int busy_ = 0;
  bool closing_ = false;
};

struct Store::Tier {
  Tier(const SlowTier& slow, const TierNeeds& tier_needs, const Ledger& ledger,
       std::span<std::byte> memory, double store_opened)
      : needs(tier_needs), checksum(slow.checksum), opened(store_opened) {
    medium = slow.open(ledger);
    medium->reserve(needs.peak);
    medium->expect(memory);
    arena = Arena(needs.peak, [this](Arena::Block, Bytes from, Bytes to, Bytes bytes) {
      move(from, to, bytes);
    });
    if (needs.encode) {
      for (int i = 0; i < 2 * slow.workers; ++i) {
        bounce.emplace_back(ledger, slow.name + " codec", needs.largest);
      }
    }
    const int workers = slow.workers;
    writes = std::make_unique<Lane>(workers, [this](Transfer& t, int w) { serve(t, w); });
    reads = std::make_unique<Lane>(workers,
                                   [this, workers](Transfer& t, int w) { serve(t, workers + w); });
  }

  struct Item {
    Arena::Block block = Arena::kNone;
    Stored stored;
  };
  Item& at(Slot slot) { return items[static_cast<std::size_t>(slot)]; }

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
    t.stored.encoded = false;
    if (needs.encode) {
      const auto room =
          bounce[static_cast<std::size_t>(worker)].at(0, static_cast<Bytes>(bytes.size()));
      const Bytes shorter = needs.encode(bytes, room);
      t.stored.encoded = shorter > 0;
      if (shorter > 0) bytes = room.first(static_cast<std::size_t>(shorter));
    }
    t.stored.bytes = static_cast<Bytes>(bytes.size());
    if (checksum) t.stored.crc = crc32c(bytes);
    medium->write(t.offset, bytes);
  }

  void read(Transfer& t, int worker) {
    std::span<std::byte> bytes = t.item;
    if (t.stored.encoded) {
      bytes = bounce[static_cast<std::size_t>(worker)].at(0, t.stored.bytes);
    }
    medium->read(t.offset, bytes);
    if (checksum && crc32c(bytes) != t.stored.crc) {
      fail(ErrorCode::io, "what was read at byte ", t.offset,
           " is not what was written there: checksums differ");
    }
    if (t.stored.encoded) needs.decode(bytes, t.item);
  }

  // Closes gaps between items; rare. Nothing may be under way then.
  void move(Bytes from, Bytes to, Bytes bytes) {
    writes->drain();
    reads->drain();
    std::vector<std::byte> chunk(static_cast<std::size_t>(std::min(bytes, kMoveChunk)));
    for (Bytes done = 0; done < bytes;) {
      const Bytes part = std::min(kMoveChunk, bytes - done);
      const Bytes at = to < from ? done : bytes - done - part;
      const auto span = std::span(chunk).first(static_cast<std::size_t>(part));
      medium->read(from + at, span);
      medium->write(to + at, span);
      done += part;
    }
  }

  TierNeeds needs;
  bool checksum;
  double opened;
  std::unique_ptr<Medium> medium;
  Arena arena;
  std::vector<Item> items;
  std::vector<Slot> unused;
  Bytes peak = 0;
  std::vector<Buffer> bounce;  // per worker: writers, then readers
  std::unique_ptr<Lane> writes, reads;
};

Store::Store(const std::vector<SlowTier>& tiers, const std::vector<TierNeeds>& needs,
             const Ledger& ledger, std::span<std::byte> memory)
    : transfers_(std::make_unique<Transfer[]>(kInFlight)), opened_(seconds_now()) {
  for (std::size_t i = 0; i < tiers.size(); ++i) {
    tiers_.push_back(std::make_unique<Tier>(tiers[i], needs[i], ledger, memory, opened_));
  }
  for (std::size_t i = kInFlight; i > 0; --i) idle_.push_back(static_cast<Ticket>(i - 1));
}

Store::~Store() = default;

Store::Slot Store::add(int tier, Bytes bytes) {
  Tier& t = *tiers_[static_cast<std::size_t>(tier)];
  const Arena::Block block = t.arena.add(bytes, Arena::End::low);
  t.peak = std::max(t.peak, t.arena.used());
  if (t.unused.empty()) {
    t.items.emplace_back();
    t.unused.push_back(static_cast<Slot>(t.items.size()) - 1);
  }
  const Slot slot = t.unused.back();
  t.unused.pop_back();
  t.at(slot) = {block, {}};
  return slot;
}

void Store::drop(int tier, Slot slot) {
  Tier& t = *tiers_[static_cast<std::size_t>(tier)];
  t.arena.remove(t.at(slot).block);
  t.unused.push_back(slot);
}

Store::Ticket Store::put(int tier, Slot slot, std::span<const std::byte> item) {
  return start(tier, slot, {const_cast<std::byte*>(item.data()), item.size()}, true);
}

Store::Ticket Store::get(int tier, Slot slot, std::span<std::byte> item) {
  return start(tier, slot, item, false);
}

Store::Ticket Store::start(int tier, Slot slot, std::span<std::byte> item, bool writes) {
  Tier& t = *tiers_[static_cast<std::size_t>(tier)];
  const Ticket ticket = idle_.back();
  idle_.pop_back();
  Transfer& transfer = transfers_[static_cast<std::size_t>(ticket)];
  transfer.tier = tier;
  transfer.slot = slot;
  transfer.writes = writes;
  transfer.offset = t.arena.offset(t.at(slot).block);
  transfer.item = item;
  transfer.stored = t.at(slot).stored;
  transfer.error = nullptr;
  transfer.state.store(Transfer::under_way, std::memory_order_relaxed);
  (writes ? t.writes : t.reads)->push(transfer);
  return ticket;
}

bool Store::done(Ticket ticket) const {
  const Transfer& transfer = transfers_[static_cast<std::size_t>(ticket)];
  return transfer.state.load(std::memory_order_acquire) == Transfer::done;
}

Store::Times Store::wait(Ticket ticket) {
  Transfer& transfer = transfers_[static_cast<std::size_t>(ticket)];
  transfer.state.wait(Transfer::under_way, std::memory_order_acquire);
  transfer.state.store(Transfer::idle, std::memory_order_relaxed);
  if (transfer.writes) {
    tiers_[static_cast<std::size_t>(transfer.tier)]->at(transfer.slot).stored = transfer.stored;
  }
  idle_.push_back(ticket);
  if (transfer.error) std::rethrow_exception(std::exchange(transfer.error, nullptr));
  return transfer.times;
}

Bytes Store::held(int tier) const { return tiers_[static_cast<std::size_t>(tier)]->arena.used(); }
Bytes Store::peak(int tier) const { return tiers_[static_cast<std::size_t>(tier)]->peak; }
double Store::now() const { return seconds_now() - opened_; }

}  // namespace ebb
