// SPDX-License-Identifier: Apache-2.0
// Once a store is open nothing is allocated any more, on no thread.
#include "ebb/device/arena.h"
#include "ebb/device/buffer.h"
#include "tests/counted_new.h"
#include "tests/store/arrangements.h"

namespace ebb::test::steady_test {
namespace {

class Steady : public EveryTier {};
INSTANTIATE_TEST_SUITE_P(Tiers, Steady, ::testing::ValuesIn(every_arrangement()), name_of);

Bytes half(std::span<const std::byte> from, std::span<std::byte> to) {
  std::ranges::copy(from.first(from.size() / 2), to.begin());
  return static_cast<Bytes>(from.size() / 2);
}
Bytes whole(std::span<const std::byte> from, std::span<std::byte> to) {
  std::ranges::copy(from, to.begin());
  std::ranges::copy(from, to.begin() + static_cast<std::ptrdiff_t>(from.size()));
  return static_cast<Bytes>(to.size());
}

TEST_P(Steady, TransfersAllocateNothing) {
  constexpr std::size_t count = 40;
  constexpr Bytes bytes = 64_KiB;
  const Buffer memory(ledger(), "items", bytes * static_cast<Bytes>(count));
  const TierNeeds needs{.peak = bytes * static_cast<Bytes>(count),
                        .largest = bytes,
                        .items = count,
                        .encode = half,
                        .decode = whole};
  Store store({GetParam().tier(folder(), needs.peak)}, {needs}, ledger(),
              memory.at(0, memory.size()));
  Store::Slot slots[count];
  Store::Ticket tickets[count];
  const auto item = [&](std::size_t i) {
    return memory.at(static_cast<Bytes>(i) * bytes, bytes - static_cast<Bytes>(i % 3) * 2);
  };
  const long before = allocations;
  for (int round = 0; round < 5; ++round) {
    for (Store::Slot& slot : slots) slot = store.add(0, bytes);
    for (std::size_t i = 0; i < count; ++i) {
      tickets[i] = store.put(0, slots[i], item(i), i % 2 == 0);
    }
    for (const Store::Ticket ticket : tickets) store.wait(ticket);
    for (std::size_t i = 0; i < count; ++i) {
      tickets[i] = store.get(0, slots[i], item(i), i % 2 == 0);
    }
    for (const Store::Ticket ticket : tickets) store.wait(ticket);
    for (const Store::Slot slot : slots) store.drop(0, slot);
  }
  EXPECT_EQ(allocations - before, 0);
}

TEST(SteadyArena, AllocatesNothing) {
  Arena arena(1000, [](Arena::Block, Bytes, Bytes, Bytes) {});
  arena.reserve(100);
  Arena::Block blocks[100];
  const long before = allocations;
  for (int round = 0; round < 10; ++round) {
    for (Arena::Block& block : blocks) block = arena.add(10, Arena::End::low);
    for (const Arena::Block block : blocks) arena.remove(block);
  }
  EXPECT_EQ(allocations - before, 0);
  const Item counted(10);
  EXPECT_EQ(allocations - before, 1);
}

}  // namespace
}  // namespace ebb::test::steady_test
