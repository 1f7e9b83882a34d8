// SPDX-License-Identifier: Apache-2.0
// Items that change on their way.
#include <atomic>
#include <stdexcept>

#include "tests/store/arrangements.h"

namespace ebb::test::transform_test {
namespace {

class EveryTransform : public EveryTier {};
INSTANTIATE_TEST_SUITE_P(Tiers, EveryTransform, ::testing::ValuesIn(every_arrangement()), name_of);

using From = std::span<const std::byte>;
using To = std::span<std::byte>;

// Bytes in pairs of equal ones become half as many; others are declined.
Bytes halve(From from, To to) {
  EXPECT_EQ(from.size(), to.size());
  for (std::size_t i = 0; i + 1 < from.size(); i += 2) {
    if (from[i] != from[i + 1]) return 0;
    to[i / 2] = from[i];
  }
  return static_cast<Bytes>(from.size() / 2);
}

Bytes pair_up(From from, To to) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = from[i / 2];
  return static_cast<Bytes>(to.size());
}

Item paired(std::mt19937& random, Bytes bytes) {
  Item item = random_item(random, bytes);
  for (std::size_t i = 0; i + 1 < item.size(); i += 2) item[i + 1] = item[i];
  return item;
}

Bytes never(From, To) {
  ADD_FAILURE() << "nothing was to be transformed";
  return 0;
}

TEST_P(EveryTransform, HalvesWhatItCan) {
  std::mt19937 random(1);
  const SlowTier tier = GetParam().tier(folder(), 4_MiB);
  const TierNeeds needs{
      .peak = 4_MiB, .largest = 1_MiB, .items = 8, .encode = halve, .decode = pair_up};
  {
    Store store({tier}, {needs}, ledger(), {});
    const Bytes own = GetParam().is_file() ? 0 : 4_MiB;
    EXPECT_EQ(ledger().live(), own + 2_MiB * tier.workers) << "bounce buffers are charged";
    std::vector<Item> items;
    std::vector<Store::Slot> slots;
    std::vector<Store::Ticket> tickets;
    for (int i = 0; i < 8; ++i) {
      const Bytes bytes = i == 0 ? 64 : 400'000 + 2 * i;
      items.push_back(i % 2 == 0 ? paired(random, bytes) : random_item(random, bytes));
      slots.push_back(store.add(0, bytes));
      tickets.push_back(store.put(0, slots.back(), items.back()));
    }
    for (std::size_t i = 0; i < 8; ++i) {
      const auto bytes = static_cast<Bytes>(items[i].size());
      EXPECT_EQ(store.wait(tickets[i]).bytes, i % 2 == 0 ? bytes / 2 : bytes);
    }
    std::vector<Item> back(8);
    for (std::size_t i = 0; i < 8; ++i) {
      back[i].resize(items[i].size());
      tickets[i] = store.get(0, slots[i], back[i]);
    }
    for (std::size_t i = 0; i < 8; ++i) store.wait(tickets[i]);
    EXPECT_EQ(back, items);
  }
  EXPECT_EQ(ledger().live(), 0);
}

TEST_P(EveryTransform, DeclinedItemsGoAsTheyAre) {
  std::mt19937 random(2);
  Store store = open({.peak = 100'000,
                      .largest = 100'000,
                      .items = 1,
                      .encode = [](From, To) { return Bytes{0}; },
                      .decode = never});
  const Item item = random_item(random, 100'000);
  const Store::Slot slot = store.add(0, 100'000);
  EXPECT_EQ(store.wait(store.put(0, slot, item)).bytes, 100'000);
  Item back(100'000);
  store.wait(store.get(0, slot, back));
  EXPECT_EQ(back, item);
}

TEST_P(EveryTransform, IsLeftOutWhenAsked) {
  std::mt19937 random(3);
  Store store =
      open({.peak = 100'000, .largest = 100'000, .items = 1, .encode = never, .decode = never});
  const Item item = paired(random, 100'000);
  const Store::Slot slot = store.add(0, 100'000);
  EXPECT_EQ(store.wait(store.put(0, slot, item, false)).bytes, 100'000);
  Item back(100'000);
  store.wait(store.get(0, slot, back, false));
  EXPECT_EQ(back, item);
}

// One slot used both ways: what counts is how it was put last.
TEST_P(EveryTransform, ChangesFromPutToPut) {
  std::mt19937 random(4);
  Store store =
      open({.peak = 50'000, .largest = 50'000, .items = 1, .encode = halve, .decode = pair_up});
  const Store::Slot slot = store.add(0, 50'000);
  for (const bool transform : {true, false, true, true, false}) {
    const Item item = paired(random, 50'000);
    const Bytes moved = store.wait(store.put(0, slot, item, transform)).bytes;
    EXPECT_EQ(moved, transform ? 25'000 : 50'000);
    Item back(50'000);
    store.wait(store.get(0, slot, back, transform));
    EXPECT_EQ(back, item);
  }
}

// Slots of the encoded size: put and got by way of the transform, or encoded as they lie there.
TEST_P(EveryTransform, SlotsOfTheEncodedSize) {
  std::mt19937 random(6);
  Store store =
      open({.peak = 25'000, .largest = 50'000, .items = 1, .encode = halve, .decode = pair_up});
  const Store::Slot slot = store.add(0, 25'000);
  const Item item = paired(random, 50'000);
  Item encoded(25'000), back(50'000);
  store.wait(store.put(0, slot, item, true));
  store.wait(store.get(0, slot, encoded, false));
  store.wait(store.put(0, slot, encoded, false));
  store.wait(store.get(0, slot, back, true));
  EXPECT_EQ(back, item);
  EXPECT_EQ(code_of([&] { store.put(0, slot, item, false); }), ErrorCode::invalid_argument);
}

TEST_P(EveryTransform, WhatItThrowsIsTheTransfersError) {
  std::mt19937 random(5);
  std::atomic<bool> encode_throws = true;
  std::atomic<bool> decode_throws = true;
  Store store = open({.peak = 50'000,
                      .largest = 50'000,
                      .items = 1,
                      .encode =
                          [&](From from, To to) {
                            if (encode_throws) throw std::domain_error("encode");
                            return halve(from, to);
                          },
                      .decode =
                          [&](From from, To to) {
                            if (decode_throws) throw std::range_error("decode");
                            return pair_up(from, to);
                          }});
  const Item item = paired(random, 50'000);
  Item back(50'000);
  const Store::Slot slot = store.add(0, 50'000);
  EXPECT_THROW(store.wait(store.put(0, slot, item)), std::domain_error);
  EXPECT_EQ(code_of([&] { store.wait(store.get(0, slot, back)); }), ErrorCode::io)
      << "what could not be put is not there";
  encode_throws = false;
  store.wait(store.put(0, slot, item));
  EXPECT_THROW(store.wait(store.get(0, slot, back)), std::range_error);
  decode_throws = false;
  store.wait(store.get(0, slot, back));
  EXPECT_EQ(back, item);
}

TEST_P(EveryTransform, ThatDecodesTooLittleIsAnError) {
  std::mt19937 random(6);
  Store store =
      open({.peak = 5000, .largest = 5000, .items = 1, .encode = halve, .decode = [](From, To to) {
              return static_cast<Bytes>(to.size()) - 1;
            }});
  const Item item = paired(random, 5000);
  Item back(5000);
  const Store::Slot slot = store.add(0, 5000);
  store.wait(store.put(0, slot, item));
  EXPECT_EQ(code_of([&] { store.wait(store.get(0, slot, back)); }), ErrorCode::io);
}

TEST_P(EveryTransform, NoItemIsLargerThanItsBuffers) {
  Store store =
      open({.peak = 5000, .largest = 1000, .items = 1, .encode = halve, .decode = pair_up});
  EXPECT_EQ(code_of([&] { store.add(0, 1001); }), ErrorCode::invalid_argument);
  EXPECT_EQ(store.held(0), 0);
  store.add(0, 1000);
}

}  // namespace
}  // namespace ebb::test::transform_test
