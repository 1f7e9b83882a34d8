// SPDX-License-Identifier: Apache-2.0
// Random numbers that are a function of a seed and a position: nothing is kept, so that whoever
// computes something again, in whatever order, gets the same numbers.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace ebb {

// Steele, Lea, Flood 2014: every bit of the argument changes every bit of the result.
constexpr std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// One stream of numbers, told apart from others by up to three words.
class Random {
 public:
  constexpr explicit Random(std::uint64_t seed, std::uint64_t stream = 0, std::uint64_t part = 0)
      : key_(mixed(mixed(mixed(seed) ^ stream) ^ part)) {}

  constexpr std::uint64_t bits(std::uint64_t i) const { return mixed(key_ ^ mixed(i)); }
  // In [0,1).
  constexpr double uniform(std::uint64_t i) const {
    return static_cast<double>(bits(i) >> 11) * 0x1p-53;
  }
  // In [0,n), n > 0.
  constexpr std::uint64_t below(std::uint64_t i, std::uint64_t n) const {
    return static_cast<std::uint64_t>(uniform(i) * static_cast<double>(n));
  }
  // Mean 0, variance 1.
  double normal(std::uint64_t i) const {
    return std::sqrt(-2 * std::log1p(-uniform(2 * i))) *
           std::cos(2 * std::numbers::pi * uniform(2 * i + 1));
  }

 private:
  std::uint64_t key_;
};

}  // namespace ebb
