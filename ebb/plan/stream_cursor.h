// SPDX-License-Identifier: Apache-2.0
// The actions of a stream plan (stream.h). Private to the room.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "ebb/plan/descent.h"

namespace ebb {

// A policy for whole segments whose start lies anywhere: it keeps the start in fast when it will be
// loaded again.
class Inside : public Policy {
 public:
  explicit Inside(std::shared_ptr<const Policy> policy) : policy_(std::move(policy)) {}
  Choice choose(const Segment& segment) const override;

 private:
  std::shared_ptr<const Policy> policy_;
};

struct StreamShape {
  std::int64_t every = 1;
  std::int64_t tapes = 0;  // 0 <= tapes <= every
  std::int64_t tail =
      1;  // steps after the last whole interval; with unknown length it is what is left over
  int tier = 0;
  int buffers = 1;          // items in fast that are being written; 0: states straight from `work`
  int ahead = 1;            // items read before they are needed
  bool save_first = false;  // the initial state is not free: interval 0 is kept like the others
};

class StreamCursor : public Cursor {
 public:
  struct Rooms {
    std::shared_ptr<const Policy> interval, tail;
    std::int64_t interval_room = 0, tail_room = 0;
  };
  // steps: nullopt while the length is unknown (tapes must be 0).
  StreamCursor(const StreamShape& shape, Rooms rooms, std::optional<std::int64_t> steps);

  bool next(Action& action) override;
  void finish(std::int64_t n) override;

 private:
  std::int64_t start_of(std::int64_t interval) const { return interval * shape_.every; }
  std::int64_t first_kept() const { return shape_.save_first || shape_.tapes > 0 ? 0 : 1; }
  void forward();
  void save(Item item, std::int64_t step);
  void release_buffers();
  void begin_tail();
  void backward();
  void begin_interval();
  void end_interval();
  // Items in the order they are used: 0 is the last one written.
  std::int64_t item_step(std::int64_t index) const;
  // Has items 0..until-1 read.
  void ask(std::int64_t until);
  void inside(const Segment& segment, const std::shared_ptr<const Policy>& policy);

  StreamShape shape_;
  Rooms rooms_;
  std::optional<std::int64_t> steps_;
  std::int64_t intervals_ = 0;  // whole ones before the tail
  std::int64_t interval_ = 0;   // the next of the sweep, then of the way back
  std::int64_t items_ = 0;      // written
  std::int64_t asked_ = 0;      // of these, read back or being read, in the order of use
  std::int64_t used_ = 0;
  std::int64_t tape_ = 0;  // the next tape of the interval to reverse, counted from its end
  enum class Phase : std::uint8_t { forward, backward, interval, done } phase_ = Phase::forward;
  std::deque<std::int64_t> writing_;
  std::deque<Action> ready_;
  std::unique_ptr<Descent> inner_;
};

}  // namespace ebb
