// SPDX-License-Identifier: Apache-2.0
// Hand-made lists of actions as a cursor, and short words for writing them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "ebb/plan/action.h"
#include "ebb/plan/plan.h"

namespace ebb::test {

class VectorCursor : public Cursor {
 public:
  using WayBack = std::function<std::vector<Action>(std::int64_t)>;

  explicit VectorCursor(std::vector<Action> actions) : actions_(std::move(actions)) {}
  // Of unknown length: the sweep, then what way_back says when the length is told.
  VectorCursor(std::vector<Action> sweep, WayBack way_back)
      : actions_(std::move(sweep)), way_back_(std::move(way_back)) {}

  bool next(Action& action) override {
    if (next_ == actions_.size()) return false;
    action = actions_[next_++];
    return true;
  }

  void finish(std::int64_t n) override {
    if (!way_back_) return Cursor::finish(n);
    actions_ = way_back_(n);
    next_ = 0;
  }

 private:
  std::vector<Action> actions_;
  std::size_t next_ = 0;
  WayBack way_back_;
};

inline Action copy_state(std::int64_t step, Place from, Place to) {
  return Copy{Item::state, from, to, step};
}
inline Action copy_tape(std::int64_t step, Place from, Place to) {
  return Copy{Item::tape, from, to, step};
}
inline Action save(std::int64_t state) { return copy_state(state, Place::work, Place::fast); }
inline Action load(std::int64_t state) { return copy_state(state, Place::fast, Place::work); }
inline Action drop_state(std::int64_t step, Place place) { return Drop{Item::state, place, step}; }
inline Action drop_tape(std::int64_t step, Place place) { return Drop{Item::tape, place, step}; }

}  // namespace ebb::test
