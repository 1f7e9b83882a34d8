// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/descent.h"

#include <utility>

namespace ebb {
namespace {

using Kind = Choice::Kind;

template <class Run>
bool join_forward(Action& before, const Run& now) {
  auto* run = std::get_if<Run>(&before);
  if (run == nullptr || run->to != now.from) return false;
  run->to = now.to;
  return true;
}

bool join(Action& before, const Action& now, bool records) {
  if (const auto* advance = std::get_if<Advance>(&now)) return join_forward(before, *advance);
  if (const auto* record = std::get_if<Record>(&now)) {
    return records && join_forward(before, *record);
  }
  if (const auto* reverse = std::get_if<Reverse>(&now)) {
    auto* run = std::get_if<Reverse>(&before);
    if (run == nullptr || run->from != reverse->to) return false;
    run->from = reverse->from;
    return true;
  }
  return false;
}

}  // namespace

Descent::Descent(std::shared_ptr<const Policy> policy, const Segment& root, bool join_records)
    : policy_(std::move(policy)), join_records_(join_records) {
  if (root.steps() > 0) enter(root);
}

bool Descent::next(Action& action) {
  while (last_ - first_ < 2 && (entering_ || !stack_.empty())) step();
  if (first_ == last_) return false;
  action = ahead_[first_++ % kAhead];
  return true;
}

void Descent::emit(const Action& action) {
  if (first_ != last_ && join(ahead_[(last_ - 1) % kAhead], action, join_records_)) return;
  ahead_[last_++ % kAhead] = action;
}

Choice Descent::choose(const Segment& segment) const {
  return segment.steps() == 1 ? Choice{} : policy_->choose(segment);
}

void Descent::enter(const Segment& segment) { enter(segment, choose(segment)); }

void Descent::enter(const Segment& segment, const Choice& choice) {
  segment_ = segment;
  choice_ = choice;
  entering_ = true;
}

void Descent::step() {
  if (!entering_) {
    leave();
    return;
  }
  entering_ = false;
  const Segment s = segment_;
  const Choice c = choice_;
  if (c.kind == Kind::keep_start) {
    emit(Copy{Item::state, Place::work, c.place, s.a});
    if (s.owned) emit(Drop{Item::state, s.start, s.a});
    enter({s.a, s.b, c.place, true, c.right_level, c.right_room});
    return;
  }
  if (s.owned && c.last_use(s)) emit(Drop{Item::state, s.start, s.a});
  switch (c.kind) {
    case Kind::record_all:
      emit(Record{s.a, s.b});
      emit(Reverse{s.a, s.b});
      break;
    case Kind::restart:
      emit(Advance{s.a, s.b - 1});
      emit(Record{s.b - 1, s.b});
      emit(Reverse{s.b - 1, s.b});
      enter_left(s, s.b - 1, c);
      break;
    case Kind::keep_state:
      emit(Advance{s.a, c.at});
      enter_right(s, c);
      break;
    case Kind::keep_tape:
      if (c.at - c.tapes > s.a) emit(Advance{s.a, c.at - c.tapes});
      emit(Record{c.at - c.tapes, c.at});
      enter_right(s, c);
      break;
    case Kind::keep_start:
      break;
  }
}

void Descent::enter_right(const Segment& s, const Choice& c) {
  stack_.push_back({s, c});
  if (c.at == s.b) return;
  Segment right{c.at, s.b, c.place, true, c.right_level, c.right_room};
  if (c.kind == Kind::keep_tape) {
    right.start = Place::fast;
    right.owned = false;
  }
  const Choice next = choose(right);
  if (c.kind == Kind::keep_state) {
    // A start that is not loaded again is not kept at all.
    if (next.last_use(right)) {
      right.owned = false;
    } else {
      emit(Copy{Item::state, Place::work, c.place, c.at});
    }
  }
  enter(right, next);
}

void Descent::enter_left(const Segment& s, std::int64_t end, const Choice& c) {
  if (end == s.a) return;
  emit(Copy{Item::state, s.start, Place::work, s.a});
  enter({s.a, end, s.start, s.owned, c.left_level, c.left_room});
}

void Descent::leave() {
  const Frame frame = stack_.back();
  stack_.pop_back();
  const bool tape = frame.choice.kind == Kind::keep_tape;
  const std::int64_t end = frame.choice.at - (tape ? frame.choice.tapes : 0);
  if (tape) emit(Reverse{end, frame.choice.at});
  enter_left(frame.segment, end, frame.choice);
}

}  // namespace ebb
