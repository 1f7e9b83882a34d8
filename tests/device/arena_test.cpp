// SPDX-License-Identifier: Apache-2.0
// The arena against a model that knows what every block should hold.
#include "ebb/device/arena.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "ebb/core/error.h"

namespace ebb::test::arena_test {
namespace {

using End = Arena::End;

class Model {
 public:
  explicit Model(Bytes size)
      : memory_(static_cast<std::size_t>(size)),
        arena_(size, [this](Arena::Block block, Bytes from, Bytes to, Bytes bytes) {
          if (moves_until_failure_ == 0) fail(ErrorCode::io, "planted");
          --moves_until_failure_;
          EXPECT_EQ(arena_.offset(block), from);
          EXPECT_EQ(static_cast<std::size_t>(bytes), content_.at(block).size());
          std::memmove(&memory_[static_cast<std::size_t>(to)],
                       &memory_[static_cast<std::size_t>(from)], static_cast<std::size_t>(bytes));
        }) {}

  // Succeeds exactly when the bytes are free in sum.
  void add(Bytes bytes, End end) {
    const Bytes used = arena_.used();
    if (bytes > arena_.size() - used) {
      try {
        arena_.add(bytes, end);
        FAIL() << bytes << " more than " << arena_.size() - used << " added";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::out_of_budget);
      }
      EXPECT_EQ(arena_.used(), used);
      return;
    }
    const Arena::Block block = arena_.add(bytes, end);
    EXPECT_FALSE(content_.contains(block));
    fill(block, bytes);
  }
  void remove(Arena::Block block) {
    arena_.remove(block);
    content_.erase(block);
  }
  void shrink(Arena::Block block, Bytes bytes) {
    arena_.shrink(block, bytes);
    content_[block].resize(static_cast<std::size_t>(bytes));
  }
  void split(Arena::Block block, Bytes bytes) {
    const Arena::Block rest = arena_.split(block, bytes);
    EXPECT_FALSE(content_.contains(rest));
    std::vector<unsigned char>& head = content_[block];
    content_[rest].assign(head.begin() + bytes, head.end());
    head.resize(static_cast<std::size_t>(bytes));
  }

  // Every block inside, apart from the others, with what was put there.
  void check() const {
    std::map<Bytes, Bytes> ranges;
    Bytes used = 0;
    for (const auto& [block, content] : content_) {
      const Bytes offset = arena_.offset(block);
      const auto bytes = static_cast<Bytes>(content.size());
      ASSERT_EQ(arena_.bytes(block), bytes);
      ASSERT_TRUE(ranges.emplace(offset, offset + bytes).second);
      ASSERT_EQ(
          std::memcmp(&memory_[static_cast<std::size_t>(offset)], content.data(), content.size()),
          0);
      used += bytes;
    }
    Bytes end = 0;
    for (const auto& [from, to] : ranges) {
      ASSERT_GE(from, end);
      end = to;
    }
    ASSERT_LE(end, arena_.size());
    ASSERT_EQ(arena_.used(), used);
  }

  Arena::Block any(std::mt19937& random) const {
    auto it = content_.begin();
    std::advance(it, random() % content_.size());
    return it->first;
  }
  bool empty() const { return content_.empty(); }
  const Arena& arena() const { return arena_; }
  Arena& arena() { return arena_; }
  void fail_after(int moves) { moves_until_failure_ = moves; }

 private:
  void fill(Arena::Block block, Bytes bytes) {
    auto& content = content_[block];
    content.resize(static_cast<std::size_t>(bytes));
    for (unsigned char& byte : content) byte = static_cast<unsigned char>(random_());
    std::memcpy(&memory_[static_cast<std::size_t>(arena_.offset(block))], content.data(),
                content.size());
  }

  std::vector<unsigned char> memory_;
  Arena arena_;
  std::map<Arena::Block, std::vector<unsigned char>> content_;
  std::mt19937 random_{1};
  int moves_until_failure_ = -1;
};

void random_change(Model& model, std::mt19937& random, Bytes largest) {
  const auto draw = [&random](Bytes below) {
    return std::uniform_int_distribution<Bytes>(0, below - 1)(random);
  };
  const Bytes choice = draw(10);
  if (choice < 5 || model.empty()) {
    model.add(1 + draw(largest), draw(2) == 0 ? End::low : End::high);
    return;
  }
  const Arena::Block block = model.any(random);
  const Bytes bytes = model.arena().bytes(block);
  if (choice < 8 || bytes == 1) {
    model.remove(block);
  } else if (choice == 8) {
    model.shrink(block, 1 + draw(bytes));
  } else {
    model.split(block, 1 + draw(bytes - 1));
  }
}

TEST(Arena, WhatFitsInSumFitsAndContentsSurvive) {
  for (unsigned seed = 0; seed < 8; ++seed) {
    std::mt19937 random(seed);
    const Bytes size = std::vector<Bytes>{1, 7, 64, 300, 1000}[seed % 5];
    Model model(size);
    for (int i = 0; i < 4000; ++i) {
      random_change(model, random, std::max<Bytes>(1, size / (1 + seed % 3)));
      ASSERT_NO_FATAL_FAILURE(model.check()) << "seed " << seed << ", change " << i;
    }
    if (size >= 300) {
      EXPECT_GT(model.arena().moved(), 0) << "the hard part was never reached";
    }
  }
}

// Every last byte can be taken, however scattered the free ones are.
TEST(Arena, ScatteredBytesAreGathered) {
  Model model(90);
  for (int i = 0; i < 30; ++i) model.add(3, i % 2 == 0 ? End::low : End::high);
  for (Arena::Block block = 0; block < 30; block += 3) model.remove(block);
  model.add(30, End::high);
  model.check();
  EXPECT_EQ(model.arena().used(), 90);
  EXPECT_GT(model.arena().moved(), 0);
  model.add(1, End::low);
}

// A gap that is large enough is used before anything moves.
TEST(Arena, GapsAreUsedFirst) {
  Model model(40);
  for (int i = 0; i < 4; ++i) model.add(10, End::low);
  model.remove(1);
  model.add(7, End::high);
  model.add(3, End::low);
  model.check();
  EXPECT_EQ(model.arena().moved(), 0);
  EXPECT_EQ(model.arena().used(), 40);
}

TEST(Arena, TwoStacksNeverMove) {
  std::mt19937 random(5);
  Arena arena(1000, [](Arena::Block, Bytes, Bytes, Bytes) { FAIL() << "a stack moved"; });
  std::vector<Arena::Block> low;
  std::vector<Arena::Block> high;
  int full = 0;
  for (int i = 0; i < 20'000; ++i) {
    const bool at_low = random() % 2 == 0;
    auto& stack = at_low ? low : high;
    const Bytes bytes = 1 + static_cast<Bytes>(random() % 60);
    const bool fits = bytes <= arena.size() - arena.used();
    full += fits ? 0 : 1;
    if (random() % 100 < 52 && fits) {
      stack.push_back(arena.add(bytes, at_low ? End::low : End::high));
    } else if (!stack.empty()) {
      arena.remove(stack.back());
      stack.pop_back();
    }
  }
  EXPECT_EQ(arena.moved(), 0);
  EXPECT_GT(full, 100) << "never full: nothing was proved";
}

// A move that fails leaves every block where offset() says, and the next try goes on from there.
TEST(Arena, AFailedMoveLosesNothing) {
  for (int moves = 0; moves < 12; ++moves) {
    Model model(90);
    for (int i = 0; i < 30; ++i) model.add(3, i % 2 == 0 ? End::low : End::high);
    for (Arena::Block block = 0; block < 30; block += 3) model.remove(block);
    model.fail_after(moves);
    EXPECT_THROW(model.add(30, End::low), Error);
    ASSERT_NO_FATAL_FAILURE(model.check());
    EXPECT_EQ(model.arena().used(), 60);
    model.fail_after(-1);
    model.add(30, End::low);
    ASSERT_NO_FATAL_FAILURE(model.check());
  }
}

TEST(Arena, OfNothing) {
  Arena arena;
  EXPECT_EQ(arena.size(), 0);
  EXPECT_THROW(arena.add(1, End::low), Error);
}

}  // namespace
}  // namespace ebb::test::arena_test
