// SPDX-License-Identifier: Apache-2.0
// What a run was measured to do: counts, seconds, bytes. The executor fills it in; what to say
// about it is the report's business.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ebb/core/bytes.h"

namespace ebb {

struct TierTraffic {
  struct Direction {
    std::int64_t states = 0, tapes = 0;  // items moved
    Bytes bytes = 0;                     // of these items
    Bytes stored = 0;                    // that went to or came from the medium for them
    double busy_seconds = 0;             // when at least one was under way
    double busy_until = 0;
  };
  Direction written, read;
};

struct Measured {
  std::int64_t steps = 0;
  std::int64_t advances = 0, records = 0, actions = 0;
  std::int64_t extra_forwards = 0;  // to make good for what could not be read; not in the others
  double seconds = 0;               // of forward and backward
  double stall_seconds = 0;         // of these, compute waited for transfers
  std::vector<Bytes> peak;          // [0]: fast, then the tiers
  std::vector<TierTraffic> tiers;
  // How many times a state or a tape was kept in fast memory.
  std::int64_t states_kept = 0, tapes_kept = 0;
  // The first states kept at each place, by step; [0]: fast, then the tiers.
  static constexpr std::size_t kStatesNamed = 16;
  std::vector<std::vector<std::int64_t>> first_states;
  Bytes closed_gaps = 0;  // bytes moved within fast memory to make room in one piece
  std::int64_t failed_transfers = 0;
  std::vector<std::string> failures;  // the first of them, in words

  std::int64_t forwards() const { return advances + records; }
};

}  // namespace ebb
