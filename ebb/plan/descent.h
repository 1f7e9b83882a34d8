// SPDX-License-Identifier: Apache-2.0
// Descent: the one way from decisions to actions. A policy says of a segment of steps what to keep;
// the descent walks down the segments, right part before left, and emits the actions. Policies know
// no actions, the descent knows no costs. Private to the room.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "ebb/plan/action.h"
#include "ebb/plan/plan.h"

namespace ebb {

// Steps [a,b) that wait to be reversed, state a live in `work`. `level` and `room` belong to the
// policy.
struct Segment {
  std::int64_t a = 0, b = 0;
  Place start = Place::fast;  // where state a can be loaded from again
  bool owned = false;  // the descent drops the start after its last load; false: the caller's, or
                       // inside a tape
  std::int32_t level = 0;
  std::int64_t room = 0;

  std::int64_t steps() const { return b - a; }
};

struct Choice {
  enum class Kind : std::uint8_t {
    record_all,  // tapes of all steps, then reverse them; the start is not needed again
    restart,     // keep nothing: reverse the last step alone, then load the start for [a,b-1)
    keep_state,  // advance to `at`, keep state `at` in `place`; right part [at,b), left part [a,at)
    keep_tape,   // advance to at-tapes, record [at-tapes,at) and keep the tapes; right part [at,b),
                 // left part [a,at-tapes)
    keep_start,  // keep the live state a in `place` too and go on with the same segment from there
  };
  Kind kind = Kind::record_all;
  Place place = Place::fast;
  std::int32_t right_level = 0, left_level = 0;
  std::int64_t at = 0;
  std::int64_t tapes = 1;
  std::int64_t right_room = 0, left_room = 0;  // keep_start: right_*; restart: left_*

  // The segment's start is not loaded again.
  bool last_use(const Segment& s) const {
    return kind == Kind::record_all || kind == Kind::keep_start ||
           (kind == Kind::keep_tape && at == s.a + tapes);
  }
};

class Policy {
 public:
  Policy() = default;
  Policy(const Policy&) = delete;
  Policy& operator=(const Policy&) = delete;
  virtual ~Policy() = default;
  // Only asked for segments of two steps or more: a single step is recorded and reversed.
  virtual Choice choose(const Segment& segment) const = 0;
};

class Descent : public Cursor {
 public:
  // Reverses `root`. An owned root start is dropped after its last load, like any other. Without
  // `join_records` neighbouring Records stay apart: together they hold the largest scratch of both
  // beside the tapes of both.
  Descent(std::shared_ptr<const Policy> policy, const Segment& root, bool join_records = true);

  bool next(Action& action) override;

 private:
  struct Frame {
    Segment segment;
    Choice choice;
  };

  void emit(const Action& action);
  void step();
  void enter(const Segment& segment);
  void enter(const Segment& segment, const Choice& choice);
  void leave();
  void enter_right(const Segment& segment, const Choice& choice);
  void enter_left(const Segment& segment, std::int64_t end, const Choice& choice);
  Choice choose(const Segment& segment) const;

  std::shared_ptr<const Policy> policy_;
  std::vector<Frame> stack_;  // segments whose right part is under way
  Segment segment_;           // the one to enter next
  Choice choice_;             // what to do with it
  bool entering_ = false;
  bool join_records_;
  // A few actions ahead, so that neighbouring Advances, Records and Reverses become one.
  static constexpr std::uint32_t kAhead = 16;
  std::array<Action, kAhead> ahead_;
  std::uint32_t first_ = 0, last_ = 0;  // ahead_[first_ % kAhead .. last_ % kAhead)
};

}  // namespace ebb
