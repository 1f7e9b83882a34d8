// SPDX-License-Identifier: Apache-2.0
// The store's queues and threads, on media that wait until they are told.
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/store/arrangements.h"

namespace ebb::test::lane_test {
namespace {

// What a medium saw, and a gate for its writes and one for its reads.
struct Scene {
  std::mutex mutex;
  std::condition_variable changed;
  bool writes_open = true, reads_open = true;
  std::vector<Bytes> order;  // offsets as they begin
  int under_way = 0, most_under_way = 0, ended = 0;

  void open_gates() {
    const std::scoped_lock lock(mutex);
    writes_open = reads_open = true;
    changed.notify_all();
  }
  void pass(Bytes offset, const bool& open) {
    std::unique_lock lock(mutex);
    order.push_back(offset);
    most_under_way = std::max(most_under_way, ++under_way);
    changed.notify_all();
    changed.wait(lock, [&open] { return open; });
    --under_way;
    ++ended;
  }
  void wait_until_under_way(int count) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return under_way == count; });
  }
};

class GatedMedium : public Medium {
 public:
  explicit GatedMedium(Scene& scene) : scene_(scene) {}
  void reserve(Bytes bytes) override { bytes_.resize(static_cast<std::size_t>(bytes)); }
  void write(Bytes offset, std::span<const std::byte> bytes) override {
    scene_.pass(offset, scene_.writes_open);
    std::ranges::copy(bytes, bytes_.begin() + offset);
  }
  void read(Bytes offset, std::span<std::byte> bytes) override {
    scene_.pass(offset, scene_.reads_open);
    std::ranges::copy(std::span(bytes_).subspan(static_cast<std::size_t>(offset), bytes.size()),
                      bytes.begin());
  }

 private:
  Scene& scene_;
  std::vector<std::byte> bytes_;
};

SlowTier gated(Scene& scene, int workers = 1) {
  return {.name = "gated",
          .open = [&scene](const Ledger&) { return std::make_unique<GatedMedium>(scene); },
          .workers = workers};
}

const TierNeeds kNeeds{.peak = 6400, .largest = 100, .items = 64};

TEST(Lane, PutReturnsAtOnceAndWaitWaits) {
  Scene scene;
  scene.writes_open = false;
  Store store({gated(scene)}, {kNeeds}, Ledger(), {});
  const Item item(100);
  const Store::Ticket ticket = store.put(0, store.add(0, 100), item);
  scene.wait_until_under_way(1);
  EXPECT_FALSE(store.done(ticket));
  std::atomic<bool> opened = false;
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    opened = true;
    scene.open_gates();
  });
  const Store::Times times = store.wait(ticket);
  EXPECT_TRUE(opened);
  EXPECT_GE(times.end - times.start, 0.015);
  later.join();
}

TEST(Lane, FirstComeFirstServed) {
  Scene scene;
  scene.writes_open = false;
  Store store({gated(scene)}, {kNeeds}, Ledger(), {});
  const Item item(100);
  std::array<Store::Slot, 64> slots;
  for (Store::Slot& slot : slots) slot = store.add(0, 100);
  std::vector<Store::Ticket> tickets;
  std::vector<Bytes> asked;
  // Twice round the queue's ring, never in order of the slots.
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < 50; ++i) {
      const std::size_t slot = (i * 23 + static_cast<std::size_t>(round)) % 64;
      tickets.push_back(store.put(0, slots[slot], item));
      asked.push_back(static_cast<Bytes>(slot) * 100);
    }
    if (round == 0) scene.open_gates();
    for (const Store::Ticket ticket : tickets) store.wait(ticket);
    tickets.clear();
  }
  EXPECT_EQ(scene.order, asked);
}

TEST(Lane, WorkersServeTogether) {
  Scene scene;
  scene.writes_open = false;
  Store store({gated(scene, 3)}, {kNeeds}, Ledger(), {});
  const Item item(100);
  std::array<Store::Ticket, 10> tickets;
  for (Store::Ticket& ticket : tickets) ticket = store.put(0, store.add(0, 100), item);
  scene.wait_until_under_way(3);
  scene.open_gates();
  for (const Store::Ticket ticket : tickets) store.wait(ticket);
  EXPECT_EQ(scene.most_under_way, 3);
}

TEST(Lane, ReadsDoNotWaitForWrites) {
  Scene scene;
  Store store({gated(scene)}, {kNeeds}, Ledger(), {});
  Item item(100, std::byte{1});
  const Store::Slot slot = store.add(0, 100);
  store.wait(store.put(0, slot, item));
  scene.writes_open = false;
  const Item other(100);
  const Store::Ticket put = store.put(0, store.add(0, 100), other);
  scene.wait_until_under_way(1);
  Item back(100);
  store.wait(store.get(0, slot, back));
  EXPECT_EQ(back, item);
  EXPECT_FALSE(store.done(put));
  scene.open_gates();
  store.wait(put);
}

TEST(Lane, TheEndWaitsForWhatIsUnderWay) {
  Scene scene;
  scene.writes_open = false;
  const Item item(100);
  std::thread later;
  {
    Store store({gated(scene)}, {kNeeds}, Ledger(), {});
    for (int i = 0; i < 20; ++i) store.put(0, store.add(0, 100), item);
    scene.wait_until_under_way(1);
    later = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      scene.open_gates();
    });
  }
  EXPECT_EQ(scene.ended, 20);
  later.join();
}

// Items may move only while nothing is under way; what is under way is waited for.
TEST(Lane, GapsAreClosedBetweenTransfers) {
  Scene scene;
  Store store({gated(scene)}, {{.peak = 300, .largest = 200, .items = 3}}, Ledger(), {});
  std::mt19937 random(1);
  const Store::Slot first = store.add(0, 100);
  const Store::Slot middle = store.add(0, 100);
  const Store::Slot last = store.add(0, 100);
  const Item item = random_item(random, 100);
  store.wait(store.put(0, middle, item));
  store.drop(0, first);
  store.drop(0, last);
  scene.writes_open = false;
  const Item changed = random_item(random, 100);
  const Store::Ticket put = store.put(0, middle, changed);
  scene.wait_until_under_way(1);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    scene.open_gates();
  });
  const Item large = random_item(random, 200);
  const Store::Slot slot = store.add(0, 200);
  EXPECT_TRUE(store.done(put));
  store.wait(put);
  store.wait(store.put(0, slot, large));
  later.join();
  Item back(100);
  store.wait(store.get(0, middle, back));
  EXPECT_EQ(back, changed);
}

}  // namespace
}  // namespace ebb::test::lane_test
