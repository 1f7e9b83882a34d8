// SPDX-License-Identifier: Apache-2.0
// Stands in for ebb/cell/gated_numbers.cuh on a CPU: each thread of a GPU is a thread, lanes of a warp meet at barriers, tensor cores are
// loops. Slow, but blocks, teams and warps are as free to run in any order as on a GPU.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <bit>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
#define __device__
#define __global__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct uint4 {
  std::uint32_t x, y, z, w;
};
struct float2 {
  float x, y;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline uint4 make_uint4(std::uint32_t x, std::uint32_t y, std::uint32_t z, std::uint32_t w) {
  return {x, y, z, w};
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

namespace ebb::gated {

using std::min;
constexpr std::uint32_t kAbsent = 0xFFFFFFFFU;
constexpr int kTeam = 256;

struct Place {
  int thread, threads, x, y;
};

struct Warp {
  std::barrier<> barrier{32};
  std::array<std::array<std::uint32_t, 6>, 32> words;
  std::array<float, 32> numbers;
  std::array<std::atomic<bool>, 32> flags;
};

struct Block {
  Block(int threads, int shared) : memory(static_cast<std::size_t>(shared) / 16), all(threads) {
    warps.resize(static_cast<std::size_t>(threads) / 32);
    for (auto& warp : warps) warp = std::make_unique<Warp>();
  }
  std::vector<std::array<std::uint64_t, 2>> memory;
  std::vector<std::unique_ptr<Warp>> warps;
  std::barrier<> all;
  std::array<std::barrier<>, 2> teams{std::barrier<>(kTeam), std::barrier<>(kTeam)};
  std::array<std::array<std::atomic<bool>, kTeam>, 2> flags;
};

inline thread_local Place this_place;
inline thread_local Block* this_block;

inline Place place() { return this_place; }
inline std::uint8_t* shared_memory() {
  return reinterpret_cast<std::uint8_t*>(this_block->memory.data());
}
inline void sync_block() { this_block->all.arrive_and_wait(); }
inline void sync_team(int team) {
  this_block->teams[static_cast<std::size_t>(team)].arrive_and_wait();
}
inline bool any_of_team(int team, bool yes) {
  auto& flags = this_block->flags[static_cast<std::size_t>(team)];
  flags[static_cast<std::size_t>(this_place.thread % kTeam)] = yes;
  sync_team(team);
  const bool found = std::ranges::any_of(flags, [](const auto& flag) { return flag.load(); });
  sync_team(team);
  return found;
}
inline Warp& this_warp() {
  return *this_block->warps[static_cast<std::size_t>(this_place.thread / 32)];
}
inline std::size_t this_lane() { return static_cast<std::size_t>(this_place.thread % 32); }

inline unsigned bits_of_any(unsigned bits) {
  Warp& warp = this_warp();
  warp.words[this_lane()][0] = bits;
  warp.barrier.arrive_and_wait();
  unsigned found = 0;
  for (const auto& words : warp.words) found |= words[0];
  warp.barrier.arrive_and_wait();
  return found;
}
inline void prefetch(const void*) {}
inline float of_next_lane(float x) {
  Warp& warp = this_warp();
  warp.numbers[this_lane()] = x;
  warp.barrier.arrive_and_wait();
  const float found = warp.numbers[std::min<std::size_t>(31, this_lane() + 1)];
  warp.barrier.arrive_and_wait();
  return found;
}

inline uint4 look(const void* at) {
  auto* const words = static_cast<std::uint32_t*>(const_cast<void*>(at));
  const auto word = [&](int i) {
    return std::atomic_ref(words[i]).load(std::memory_order_relaxed);
  };
  return {word(0), word(1), word(2), word(3)};
}
inline bool is_absent(const uint4& found) {
  return found.x == kAbsent || found.y == kAbsent || found.z == kAbsent || found.w == kAbsent;
}
inline float not_a_number() { return std::numeric_limits<float>::quiet_NaN(); }
inline std::uint32_t word_of(float x) { return std::bit_cast<std::uint32_t>(x); }
inline float float_of(std::uint32_t word) { return std::bit_cast<float>(word); }
inline void put(void* at, std::uint32_t word) {
  std::atomic_ref(*static_cast<std::uint32_t*>(at)).store(word, std::memory_order_relaxed);
}
inline void give_up(int* where) { std::atomic_ref(*where).store(1); }

// The product of fragments as PTX lays them out: depth numbers along K, each of which `number` reads from a word of a lane.
template <int depth, class Number>
void multiply_fragments(float (&d)[4], const std::array<std::uint32_t, 6>& own,
                        const Number& number) {
  Warp& warp = this_warp();
  warp.words[this_lane()] = own;
  warp.barrier.arrive_and_wait();
  for (std::size_t i = 0; i < 4; ++i) {
    const std::size_t row = this_lane() / 4 + i / 2 * 8, column = this_lane() % 4 * 2 + i % 2;
    for (std::size_t k = 0; k < depth; ++k) {
      constexpr std::size_t half = depth / 2, each = half / 4;
      const std::size_t q = k % half / each;
      const std::uint32_t a = warp.words[row % 8 * 4 + q][row / 8 + k / half * 2];
      const std::uint32_t b = warp.words[column * 4 + q][4 + k / half];
      d[i] += number(a, k % each) * number(b, k % each);
    }
  }
  warp.barrier.arrive_and_wait();
}

struct Bfloat16 {
  std::uint16_t bits;
};

template <class T>
struct Multiplied;

template <>
struct Multiplied<Bfloat16> {
  static float to_float(Bfloat16 x) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
  }
  static Bfloat16 of_float(float x) {
    if (x != x) return {0x7FFF};
    const std::uint32_t word = word_of(x);
    return {static_cast<std::uint16_t>((word + 0x7FFF + (word >> 16 & 1)) >> 16)};
  }
  static std::uint32_t pair(float first, float second) {
    return of_float(first).bits | static_cast<std::uint32_t>(of_float(second).bits) << 16;
  }
  template <class X>
  static X rounded(X x) {
    return x;
  }
  static void multiply(float (&d)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2,
                       std::uint32_t a3, std::uint32_t b0, std::uint32_t b1) {
    multiply_fragments<16>(d, {a0, a1, a2, a3, b0, b1}, [](std::uint32_t word, std::size_t i) {
      return to_float({static_cast<std::uint16_t>(word >> (16 * i))});
    });
  }
};

template <>
struct Multiplied<float> {
  static float to_float(float x) { return x; }
  static float of_float(float x) { return x; }
  template <class X>
  static X rounded(X x) {
    return x;
  }
  static void multiply(float (&d)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2,
                       std::uint32_t a3, std::uint32_t b0, std::uint32_t b1) {
    multiply_fragments<8>(d, {a0, a1, a2, a3, b0, b1},
                          [](std::uint32_t word, std::size_t) { return float_of(word); });
  }
};

// Runs a kernel in a grid of `x` by `y` blocks.
inline void run_grid(int x, int y, int threads, int shared, const std::function<void()>& kernel) {
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<std::jthread> all;
  blocks.reserve(static_cast<std::size_t>(x) * static_cast<std::size_t>(y));
  for (int i = 0; i < x * y; ++i) blocks.push_back(std::make_unique<Block>(threads, shared + 16));
  for (int i = 0; i < x * y; ++i) {
    for (int thread = 0; thread < threads; ++thread) {
      all.emplace_back([&, i, thread] {
        this_block = blocks[static_cast<std::size_t>(i)].get();
        this_place = {thread, threads, i % x, i / x};
        kernel();
      });
    }
  }
}

}  // namespace ebb::gated
