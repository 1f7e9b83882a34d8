// SPDX-License-Identifier: Apache-2.0
// What every tier must do, and the null tier's own part.
#include "ebb/store/store.h"

#include <gmock/gmock.h>

#include <deque>
#include <map>

#include "ebb/device/buffer.h"
#include "tests/message_of.h"
#include "tests/store/arrangements.h"

namespace ebb::test::store_test {
namespace {

INSTANTIATE_TEST_SUITE_P(Tiers, EveryTier, ::testing::ValuesIn(every_arrangement()), name_of);

TEST_P(EveryTier, ItemsOfAnySizeComeBack) {
  std::mt19937 random(1);
  Store store = open({.peak = 16_MiB, .largest = 3_MiB, .items = 20});
  for (const Bytes bytes : {1_B, 2_B, 511_B, 512_B, 4095_B, 4096_B, 4097_B, 16_KiB, 16_KiB + 1,
                            100'003_B, 256_KiB, 256_KiB + 1, 1_MiB, 3_MiB - 1, 3_MiB}) {
    const Item item = random_item(random, bytes);
    const Store::Slot slot = store.add(0, bytes);
    const Store::Times put = store.wait(store.put(0, slot, item));
    EXPECT_EQ(put.bytes, bytes);
    EXPECT_LE(put.start, put.end);
    EXPECT_LE(put.end, store.now());
    Item back(item.size());
    EXPECT_EQ(store.wait(store.get(0, slot, back)).bytes, bytes);
    EXPECT_EQ(back, item) << bytes << " bytes";
  }
}

// Pages of their own, so that direct I/O really is.
TEST_P(EveryTier, AlignedItemsComeBack) {
  std::mt19937 random(2);
  const Buffer memory(ledger(), "items", 8_MiB);
  const auto all = memory.at(0, memory.size());
  const TierNeeds needs{.peak = 4_MiB, .largest = 3_MiB, .items = 4};
  Store store({GetParam().tier(folder(), needs.peak)}, {needs}, ledger(), all);
  for (const Bytes bytes : {4_KiB, 260_KiB, 3_MiB, 2_MiB + 5}) {
    const Item item = random_item(random, bytes);
    std::ranges::copy(item, memory.data());
    const Store::Slot slot = store.add(0, bytes);
    store.wait(store.put(0, slot, memory.at(0, bytes)));
    const auto back = memory.at(4_MiB, bytes);
    store.wait(store.get(0, slot, back));
    EXPECT_TRUE(std::ranges::equal(item, back)) << bytes << " bytes";
    store.drop(0, slot);
  }
}

// Smaller than the slot is allowed, larger is not.
TEST_P(EveryTier, AnItemMayBeSmallerThanItsSlot) {
  std::mt19937 random(3);
  Store store = open({.peak = 100_KiB, .largest = 100_KiB, .items = 1});
  const Store::Slot slot = store.add(0, 100_KiB);
  for (const Bytes bytes : {0_B, 70'001_B, 5_B}) {
    const Item item = random_item(random, bytes);
    store.wait(store.put(0, slot, item));
    Item back(item.size());
    store.wait(store.get(0, slot, back));
    EXPECT_EQ(back, item);
  }
  Item large(100_KiB + 1);
  EXPECT_THAT(message_of([&] { store.put(0, slot, large); }), ::testing::HasSubstr("102401"));
  // Got into more memory than was put: its first bytes.
  const Item item = random_item(random, 500);
  store.wait(store.put(0, slot, item));
  store.wait(store.get(0, slot, large));
  EXPECT_TRUE(std::ranges::equal(item, std::span(large).first(500)));
  Item small(499);
  EXPECT_EQ(code_of([&] { store.wait(store.get(0, slot, small)); }), ErrorCode::io);
  EXPECT_EQ(store.held(0), 100_KiB);
}

TEST_P(EveryTier, ManyAreUnderWay) {
  std::mt19937 random(4);
  Store store = open({.peak = 6_MiB, .largest = 90'000, .items = 64});
  std::vector<Item> items;
  std::vector<Store::Slot> slots;
  std::vector<Store::Ticket> tickets;
  for (int i = 0; !store.full(); ++i) {
    items.push_back(random_item(random, 50'000 + 600 * i));
    slots.push_back(store.add(0, 50'000 + 600 * i));
    tickets.push_back(store.put(0, slots.back(), items.back()));
  }
  EXPECT_EQ(tickets.size(), 64U);
  EXPECT_THAT(message_of([&] { store.put(0, slots[0], items[0]); }), ::testing::HasSubstr("64"));
  // Waited for in another order than started.
  for (std::size_t i = 0; i < 64; ++i) store.wait(tickets[i * 37 % 64]);
  EXPECT_FALSE(store.full());
  std::vector<Item> back(64);
  for (std::size_t i = 0; i < 64; ++i) {
    back[i].resize(items[i].size());
    tickets[i] = store.get(0, slots[i], back[i]);
  }
  for (std::size_t i = 64; i > 0; --i) store.wait(tickets[i - 1]);
  EXPECT_EQ(back, items);
}

TEST_P(EveryTier, DoneSaysSo) {
  Store store = open({.peak = 1_MiB, .largest = 1_MiB, .items = 1});
  const Item item(1_MiB);
  const Store::Ticket ticket = store.put(0, store.add(0, 1_MiB), item);
  while (!store.done(ticket)) {
  }
  EXPECT_EQ(store.wait(ticket).bytes, 1_MiB);
}

TEST_P(EveryTier, BeyondItsNeedsIsRefused) {
  Store store = open({.peak = 10'000, .largest = 6000, .items = 2});
  const Store::Slot first = store.add(0, 6000);
  EXPECT_EQ(code_of([&] { store.add(0, 4001); }), ErrorCode::out_of_budget);
  EXPECT_EQ(store.held(0), 6000);
  const Store::Slot second = store.add(0, 4000);
  EXPECT_NE(first, second);
  EXPECT_EQ(store.held(0), 10'000);
  store.drop(0, first);
  EXPECT_EQ(store.held(0), 4000);
  store.add(0, 6000);
}

// Random use against a plain map. Gaps have to be closed on the way, with transfers under way.
TEST_P(EveryTier, LikeAMap) {
  constexpr Bytes peak = 400'000;
  constexpr Bytes largest = 90'000;
  std::mt19937 random(6);
  Store store = open({.peak = peak, .largest = largest, .items = 40});
  std::map<Store::Slot, Item> items;
  std::deque<Store::Ticket> puts;
  Bytes held = 0;
  int refused = 0;
  for (int i = 0; i < 600; ++i) {
    const Bytes bytes = 1 + static_cast<Bytes>(random() % largest);
    if (random() % 3 != 0 && held + bytes <= peak) {
      const Store::Slot slot = store.add(0, bytes);
      ASSERT_TRUE(items.emplace(slot, random_item(random, bytes)).second);
      puts.push_back(store.put(0, slot, items[slot]));
      held += bytes;
    } else if (!items.empty()) {
      refused += held + bytes > peak ? 1 : 0;
      for (; !puts.empty(); puts.pop_front()) store.wait(puts.front());
      auto it = items.begin();
      std::advance(it, random() % items.size());
      Item back(it->second.size());
      store.wait(store.get(0, it->first, back));
      ASSERT_EQ(back, it->second) << "change " << i;
      held -= static_cast<Bytes>(back.size());
      store.drop(0, it->first);
      items.erase(it);
    }
    ASSERT_EQ(store.held(0), held);
  }
  EXPECT_GT(refused, 20) << "never full: gaps were never closed";
  for (; !puts.empty(); puts.pop_front()) store.wait(puts.front());
}

// By less than the part that is moved at a time.
TEST_P(EveryTier, LargeItemsMoveInParts) {
  std::mt19937 random(9);
  Store store = open({.peak = 4_MiB, .largest = 3_MiB, .items = 3});
  const Store::Slot first = store.add(0, 500'000);
  const Store::Slot large = store.add(0, 3_MiB + 1);
  const Item item = random_item(random, 3_MiB + 1);
  store.wait(store.put(0, large, item));
  store.drop(0, first);
  store.add(0, 1_MiB - 1);
  Item back(item.size());
  store.wait(store.get(0, large, back));
  EXPECT_TRUE(back == item);
}

TEST_P(EveryTier, WhatWasNeverPutCannotBeGot) {
  Store store = open({.peak = 100, .largest = 100, .items = 1});
  const Store::Slot slot = store.add(0, 100);
  Item item(100);
  EXPECT_EQ(code_of([&] { store.wait(store.get(0, slot, item)); }), ErrorCode::io);
  store.wait(store.put(0, slot, item));
  store.drop(0, slot);
  const Store::Slot again = store.add(0, 100);
  EXPECT_EQ(code_of([&] { store.wait(store.get(0, again, item)); }), ErrorCode::io);
}

TEST_P(EveryTier, StoresInOnePlaceNeverMeet) {
  std::mt19937 random(7);
  const TierNeeds needs{.peak = 200'000, .largest = 100'000, .items = 2};
  Store one = open(needs);
  Store two = open(needs);
  const Item first = random_item(random, 100'000);
  const Item second = random_item(random, 100'000);
  const Store::Slot at_one = one.add(0, 100'000);
  const Store::Slot at_two = two.add(0, 100'000);
  const Store::Ticket put_one = one.put(0, at_one, first);
  const Store::Ticket put_two = two.put(0, at_two, second);
  one.wait(put_one);
  two.wait(put_two);
  Item back(100'000);
  one.wait(one.get(0, at_one, back));
  EXPECT_EQ(back, first);
  two.wait(two.get(0, at_two, back));
  EXPECT_EQ(back, second);
}

TEST_P(EveryTier, MoreThanItsCapacityIsRefused) {
  std::string text;
  const TierNeeds needs{.peak = 2_MiB, .largest = 1};
  const auto open_it = [&] {
    const Store store({GetParam().tier(folder(), 1_MiB)}, {needs}, ledger(), {});
  };
  EXPECT_EQ(code_of(open_it, &text), ErrorCode::out_of_budget);
  EXPECT_THAT(text, ::testing::AllOf(::testing::HasSubstr("2 MiB"), ::testing::HasSubstr("1 MiB")));
  EXPECT_EQ(ledger().live(), 0);
}

TEST(Store, SeveralTiersAtOnce) {
  std::mt19937 random(8);
  const TemporaryFolder folder;
  const TierNeeds needs{.peak = 300'000, .largest = 100'000, .items = 3};
  Store store({memory_tier(1_MiB), file_tier(folder.path(), 1_MiB), null_tier()},
              {needs, needs, needs}, Ledger(), {});
  std::vector<Item> items;
  std::vector<Store::Ticket> tickets;
  std::vector<Store::Slot> slots;
  for (int i = 0; i < 9; ++i) {
    const Item& item = items.emplace_back(random_item(random, 90'000 + i));
    slots.push_back(store.add(i % 3, static_cast<Bytes>(item.size())));
    tickets.push_back(store.put(i % 3, slots.back(), item));
  }
  for (const Store::Ticket ticket : tickets) store.wait(ticket);
  for (int i = 0; i < 9; ++i) {
    const Item& item = items[static_cast<std::size_t>(i)];
    Item back(item.size());
    store.wait(store.get(i % 3, slots[static_cast<std::size_t>(i)], back));
    EXPECT_EQ(back == item, i % 3 != 2) << "the null tier alone keeps nothing";
  }
}

TEST(Store, MemoryIsChargedToTheLedger) {
  const Ledger ledger(1_MiB);
  {
    const Store store({memory_tier(1_GiB)}, {{.peak = 700'000, .largest = 1}}, ledger, {});
    EXPECT_EQ(ledger.live(), 700'000);
    const auto second = [&] {
      const Store more({memory_tier(1_GiB)}, {{.peak = 400'000, .largest = 1}}, ledger, {});
    };
    EXPECT_EQ(code_of(second), ErrorCode::out_of_budget);
    EXPECT_EQ(ledger.live(), 700'000);
  }
  EXPECT_EQ(ledger.live(), 0);
}

// Free of charge in memory, and done when put returns.
TEST(Store, TheNullTierIsFree) {
  const Ledger ledger(0);
  Store store({null_tier()}, {{.peak = 1_GiB, .largest = 1_GiB, .items = 2}}, ledger, {});
  Item item(1'000'000, std::byte{5});
  const Store::Slot slot = store.add(0, 1_GiB);
  const Store::Ticket put = store.put(0, slot, item);
  EXPECT_TRUE(store.done(put));
  EXPECT_EQ(store.wait(put).bytes, 1'000'000);
  const Store::Ticket get = store.get(0, slot, item);
  EXPECT_TRUE(store.done(get));
  store.wait(get);
  EXPECT_EQ(item, Item(1'000'000, std::byte{5}));
  EXPECT_EQ(store.held(0), 1_GiB);
}

TEST(Store, SmallItemsInMemoryAreDoneAtOnce) {
  Store store({memory_tier(1_MiB)}, {{.peak = 1_MiB, .largest = 4_KiB}}, Ledger(), {});
  const Item item(4_KiB);
  const Store::Ticket ticket = store.put(0, store.add(0, 4_KiB), item);
  EXPECT_TRUE(store.done(ticket));
  store.wait(ticket);
}

TEST(Store, MistakesAreRefused) {
  const Ledger ledger;
  const auto opens = [&](const SlowTier& tier, const std::vector<TierNeeds>& needs) {
    return message_of([&] { const Store store({tier}, needs, ledger, {}); });
  };
  EXPECT_THAT(opens(null_tier(), {}), ::testing::HasSubstr("1 tiers, and needs for 0"));
  EXPECT_THAT(opens({.name = "mine"}, {{}}), ::testing::HasSubstr("mine"));
  SlowTier idle = null_tier();
  idle.workers = 0;
  EXPECT_THAT(opens(idle, {{}}), ::testing::HasSubstr("no workers"));
  EXPECT_NE(opens(null_tier(), {{.peak = -1}}), "no error");
  const auto same = [](std::span<const std::byte>, std::span<std::byte>) { return Bytes{0}; };
  EXPECT_NE(opens(null_tier(), {{.encode = same}}), "no error");
  EXPECT_NE(opens(null_tier(), {{.decode = same}}), "no error");
}

}  // namespace
}  // namespace ebb::test::store_test
