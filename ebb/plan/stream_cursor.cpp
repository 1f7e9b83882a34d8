// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/stream_cursor.h"

#include <algorithm>
#include <utility>

#include "ebb/core/error.h"

namespace ebb {

Choice Inside::choose(const Segment& segment) const {
  Choice choice = policy_->choose(segment);
  if (segment.start == Place::fast || choice.last_use(segment)) return choice;
  choice = {};
  choice.kind = Choice::Kind::keep_start;
  choice.right_level = segment.level;
  choice.right_room = segment.room;
  return choice;
}

StreamCursor::StreamCursor(const StreamShape& shape, Rooms rooms, std::optional<std::int64_t> steps)
    : shape_(shape), rooms_(std::move(rooms)), steps_(steps) {
  if (steps_) intervals_ = (*steps_ - shape_.tail) / shape_.every;
  if (steps_ == 0) phase_ = Phase::done;
}

bool StreamCursor::next(Action& action) {
  for (;;) {
    if (!ready_.empty()) {
      action = ready_.front();
      ready_.pop_front();
      return true;
    }
    if (inner_) {
      if (inner_->next(action)) return true;
      inner_.reset();
    }
    switch (phase_) {
      case Phase::forward:
        forward();
        break;
      case Phase::backward:
        backward();
        break;
      case Phase::interval:
        end_interval();
        break;
      case Phase::done:
        return false;
    }
  }
}

void StreamCursor::save(Item item, std::int64_t step) {
  const Place slow = Place::slow(shape_.tier);
  ++items_;
  if (item == Item::state && shape_.buffers == 0) {
    ready_.emplace_back(Copy{item, Place::work, slow, step});
    return;
  }
  if (item == Item::state) ready_.emplace_back(Copy{item, Place::work, Place::fast, step});
  ready_.emplace_back(Copy{item, Place::fast, slow, step});
  writing_.push_back(step);
}

void StreamCursor::release_buffers() {
  const Item item = shape_.tapes > 0 ? Item::tape : Item::state;
  while (!writing_.empty()) {
    ready_.emplace_back(Drop{item, Place::fast, writing_.front()});
    writing_.pop_front();
  }
}

void StreamCursor::forward() {
  if (steps_ && interval_ == intervals_) {
    begin_tail();
    return;
  }
  const std::int64_t a = start_of(interval_);
  const std::int64_t b = a + shape_.every;
  const Item item = shape_.tapes > 0 ? Item::tape : Item::state;
  const auto make_room = [&] {
    if (static_cast<int>(writing_.size()) < std::max(shape_.buffers, 1)) return;
    ready_.emplace_back(Drop{item, Place::fast, writing_.front()});
    writing_.pop_front();
  };
  if (item == Item::state && interval_ >= first_kept()) {
    if (shape_.buffers > 0) make_room();
    save(item, a);
  }
  for (std::int64_t t = a; t < a + shape_.tapes; ++t) {
    make_room();
    ready_.emplace_back(Record{t, t + 1});
    save(item, t);
  }
  if (a + shape_.tapes < b) ready_.emplace_back(Advance{a + shape_.tapes, b});
  ++interval_;
}

void StreamCursor::finish(std::int64_t n) {
  const std::int64_t reached = start_of(interval_);
  if (steps_ || n > reached || n < reached - shape_.every || n < 0) {
    fail(ErrorCode::invalid_argument, "finish(", n, "): ",
         steps_ ? "this plan knows its length"
                : "the sequence must end inside the last advance, at most at ",
         reached);
  }
  steps_ = n;
  release_buffers();
  if (n == reached - shape_.every && interval_ > 0) {
    // The last interval is empty: its start restarts nothing.
    --interval_;
    if (interval_ >= first_kept()) {
      --items_;
      ready_.emplace_back(Drop{Item::state, Place::slow(shape_.tier), n});
    }
  }
  intervals_ = interval_;
  phase_ = Phase::backward;
  ask(shape_.ahead);
}

void StreamCursor::begin_tail() {
  release_buffers();
  ask(shape_.ahead);
  phase_ = Phase::backward;
  Segment tail{start_of(intervals_), *steps_};
  tail.room = rooms_.tail_room;
  tail.start = intervals_ == 0 && !shape_.save_first ? Place::fast : Place::work;
  inside(tail, rooms_.tail);
}

void StreamCursor::inside(const Segment& segment, const std::shared_ptr<const Policy>& policy) {
  inner_ = std::make_unique<Descent>(policy, segment);
}

std::int64_t StreamCursor::item_step(std::int64_t index) const {
  const std::int64_t number = items_ - 1 - index;  // in the order of writing
  if (shape_.tapes == 0) return start_of(number + first_kept());
  return start_of(number / shape_.tapes) + number % shape_.tapes;
}

void StreamCursor::ask(std::int64_t until) {
  const Item item = shape_.tapes > 0 ? Item::tape : Item::state;
  for (; asked_ < std::min(until, items_); ++asked_) {
    ready_.emplace_back(Copy{item, Place::slow(shape_.tier), Place::fast, item_step(asked_)});
  }
}

void StreamCursor::backward() {
  if (interval_ == 0) {
    phase_ = Phase::done;
    return;
  }
  --interval_;
  begin_interval();
}

void StreamCursor::begin_interval() {
  const std::int64_t a = start_of(interval_);
  const std::int64_t from = a + shape_.tapes;
  const std::int64_t to = std::min(a + shape_.every, *steps_);
  const Place slow = Place::slow(shape_.tier);
  Segment segment{from, to};
  segment.room = rooms_.interval_room;
  phase_ = Phase::interval;
  tape_ = 0;
  if (shape_.tapes > 0) {
    // The last tape of the interval restarts the steps after it.
    if (from == to) return;
    ask(used_ + 1 + shape_.ahead);
    ready_.emplace_back(Copy{Item::state, Place::fast, Place::work, from});
  } else if (interval_ < first_kept()) {
    ready_.emplace_back(Copy{Item::state, Place::fast, Place::work, a});
  } else if (shape_.ahead == 0) {
    ready_.emplace_back(Copy{Item::state, slow, Place::work, a});
    ready_.emplace_back(Drop{Item::state, slow, a});
    segment.start = Place::work;
    ++used_;
  } else {
    ready_.emplace_back(Copy{Item::state, Place::fast, Place::work, a});
    ready_.emplace_back(Drop{Item::state, slow, a});
    // What is not loaded again makes room for what is read ahead.
    segment.owned = segment.steps() > 1 && !rooms_.interval->choose(segment).last_use(segment);
    if (!segment.owned) ready_.emplace_back(Drop{Item::state, Place::fast, a});
    ++used_;
    ask(used_ + shape_.ahead);
  }
  inside(segment, rooms_.interval);
}

void StreamCursor::end_interval() {
  if (tape_ == shape_.tapes) {
    phase_ = Phase::backward;
    return;
  }
  const std::int64_t step = start_of(interval_) + shape_.tapes - 1 - tape_;
  ask(used_ + 1 + shape_.ahead);
  ++used_;
  ready_.emplace_back(Reverse{step, step + 1});
  ready_.emplace_back(Drop{Item::tape, Place::slow(shape_.tier), step});
  ++tape_;
}

}  // namespace ebb
