// SPDX-License-Identifier: Apache-2.0
// A plan: a source of actions with a prediction. Plans are made by make_plan (strategies.h),
// checked by replay (replay.h) and executed by the room run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ebb/core/bytes.h"
#include "ebb/plan/action.h"
#include "ebb/plan/chain.h"
#include "ebb/plan/machine.h"

namespace ebb {

// Yields a plan's actions one at a time, in O(items held) memory.
class Cursor {
 public:
  Cursor() = default;
  Cursor(const Cursor&) = delete;
  Cursor& operator=(const Cursor&) = delete;
  virtual ~Cursor() = default;

  // false: there are no more actions, `action` is untouched.
  virtual bool next(Action& action) = 0;

  // For a plan of unknown length: the sequence ended after n steps, inside the last Advance handed
  // out. The cursor goes on with the actions of the way back. Other plans throw
  // Error(invalid_argument).
  virtual void finish(std::int64_t n);
};

// What a plan will cost, or what replay or a run found it to cost.
struct Prediction {
  struct Traffic {
    Bytes written = 0, read = 0;
    friend bool operator==(const Traffic&, const Traffic&) = default;
  };
  std::int64_t forwards = 0;  // every execution of a forward step: advances + records
  std::int64_t advances = 0;
  std::int64_t records = 0;
  std::int64_t actions = 0;
  double seconds = 0;
  double stall_seconds = 0;    // of these, compute waited
  std::vector<Bytes> peak;     // [0]: fast, the working set included; [1+k]: slow tier k
  std::vector<Traffic> moved;  // per slow tier
};

// A time that no exact plan can beat, and why.
struct Bound {
  double seconds = 0;
  std::string
      relaxation;  // the argument the bound rests on, one phrase; docs/planning.md has the proofs
};

// What make_plan found: actions, read one at a time through a Cursor, with a prediction and a bound.
class Plan {
 public:
  std::string strategy;  // the row that made the actions; for auto, the one it chose
  std::vector<std::pair<std::string, std::int64_t>>
      parameters;        // what the strategy was given or found
  bool optimal = false;  // provably no slower than any plan in the strategy's own model
  Prediction prediction;
  Bound bound;  // no exact plan on this machine is faster
  // prediction.seconds / bound.seconds - 1, and 0 when both are 0.
  double gap() const;

  Machine machine;
  bool length_unknown = false;  // the cursor waits for finish(n)
  // What tables took at most while a run planned it; 0: it was not planned by a run.
  Bytes tables = 0;
  // A fresh cursor at the first action. Cursors may outlive the plan.
  std::unique_ptr<Cursor> cursor() const { return start_(); }

  using Start = std::function<std::unique_ptr<Cursor>()>;
  void set_start(Start start) { start_ = std::move(start); }

 private:
  Start start_;
};

}  // namespace ebb
