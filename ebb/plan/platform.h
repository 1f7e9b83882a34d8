// SPDX-License-Identifier: Apache-2.0
// A platform: the memories a plan may use and how fast bytes move between them. Plain numbers.
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/core/bytes.h"

namespace ebb {

// A slow memory. One transfer takes its latency + bytes / rate; transfers of one direction queue,
// first come first served; without `duplex` both directions share one queue.
struct Tier {
  std::string name = {};
  Bytes capacity = kUnlimited;
  double write_rate = std::numeric_limits<double>::infinity();  // bytes a second, > 0
  double read_rate = std::numeric_limits<double>::infinity();
  double write_latency = 0;  // seconds
  double read_latency = 0;
  bool duplex = true;

  double write_seconds(Bytes bytes) const {
    return write_latency + static_cast<double>(bytes) / write_rate;
  }
  double read_seconds(Bytes bytes) const {
    return read_latency + static_cast<double>(bytes) / read_rate;
  }
  friend bool operator==(const Tier&, const Tier&) = default;
};

// The memories of a machine: the fast one, and slow tiers with their capacities and speeds.
struct Platform {
  std::string name = {};
  Bytes fast = kUnlimited;       // the memory where compute happens
  std::vector<Tier> tiers = {};  // slow memories, nearest first
  // Of states within fast memory, to and from where compute happens: bytes a second, > 0.
  double copy_rate = std::numeric_limits<double>::infinity();
  friend bool operator==(const Platform&, const Platform&) = default;
};

// Throws Error(invalid_argument) that opens with `what` unless the name of a tier begins with a letter, is
// made of letters, digits, '_', '-' and '.', and is not "work" or "fast": a name is written into files and
// pages, and read back from a command line.
void check_tier_name(std::string_view what, std::string_view name);

// Throws Error(invalid_argument) for negative sizes, rates that are not positive, latencies that
// are negative or not finite, names of tiers that check_tier_name refuses or that are repeated, and
// more than 30 tiers.
void check_platform(const Platform& platform);

}  // namespace ebb
