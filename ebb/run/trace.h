// SPDX-License-Identifier: Apache-2.0
// A trace: what a run did when, for Chrome's and Perfetto's viewers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ebb/core/bytes.h"

namespace ebb {

struct TraceEvent {
  enum class Kind : std::uint8_t { advance, record, reverse, recover, wait, write, read };
  Kind kind = Kind::advance;
  std::int8_t tier = -1;          // of write and read
  bool tape = false;              // of write and read: else a state
  double start = 0, end = 0;      // seconds since the run was made
  std::int64_t from = 0, to = 0;  // steps
  Bytes bytes = 0;                // of write and read
};

// Holds the first events, as many as it has room for, and counts the rest.
class Trace {
 public:
  explicit Trace(std::size_t most) { events_.reserve(most); }
  void add(const TraceEvent& event) {
    if (events_.size() < events_.capacity()) {
      events_.push_back(event);
    } else {
      ++lost_;
    }
  }
  void clear() {
    events_.clear();
    lost_ = 0;
  }
  // {"traceEvents":[...]}; `tiers` are the names of the slow tiers.
  std::string json(const std::vector<std::string>& tiers) const;

 private:
  std::vector<TraceEvent> events_;
  std::int64_t lost_ = 0;
};

}  // namespace ebb
