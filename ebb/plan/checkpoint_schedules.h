// SPDX-License-Identifier: Apache-2.0
// Plans in the vocabulary of the Python package checkpoint_schedules, so that its users and
// validators can run them: one action at a time, or as JSON lines.
//
// There, time does not overlap, `WORK` holds one thing at a time, and a checkpoint is written by
// the Forward that starts at it and restarts only the steps that Forward ran. So transfers started
// ahead are said where they are needed, an initial state that is the caller's own is written by the
// first Forward, the last load of a state is a Move, and what is never loaded is not written. fast
// is RAM, the slow tier is DISK.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>

#include "ebb/core/bytes.h"
#include "ebb/plan/plan.h"

namespace ebb {

// One action of that package, with the parameters of its classes.
struct ScheduleAction {
  enum class Kind : std::uint8_t { forward, reverse, copy, move, end_forward, end_reverse };
  enum class Storage : std::uint8_t { none, work, ram, disk };
  Kind kind = Kind::end_reverse;
  std::int64_t n0 = 0, n1 = 0;  // forward and reverse; copy and move: n0 is their n
  bool write_ics = false, write_adj_deps = false;    // forward
  Storage from = Storage::none, to = Storage::none;  // copy and move; forward: `to` is its storage
};

// {"action":"Forward","n0":0,"n1":3,"write_ics":true,"write_adj_deps":false,"storage":"RAM"},
// {"action":"Reverse","n1":3,"n0":2,"clear_adj_deps":true},
// {"action":"Copy","n":0,"from_storage":"DISK","to_storage":"WORK"}, the same with Move,
// {"action":"EndForward"}, {"action":"EndReverse"}. Storages are the names of StorageType.
std::string to_json(const ScheduleAction& action);

// Yields the actions of a plan for `steps` steps. Takes a turn of the plan's cursor when it is made
// and one while it goes, O(items held) memory and two bits per copy.
class ScheduleCursor {
 public:
  // Tapes that are reversed right after they were recorded lie in WORK, as many as `tapes_in_work`;
  // all others in RAM.
  ScheduleCursor(const Plan& plan, std::int64_t steps, std::int64_t tapes_in_work = kUnlimited);
  ~ScheduleCursor();
  ScheduleCursor(ScheduleCursor&&) noexcept;
  ScheduleCursor& operator=(ScheduleCursor&&) noexcept;

  // false: there are no more. Throws Error(invalid_argument) that names the first action which
  // cannot be said there (a restart from a tape, a transfer of a tape, a second slow tier).
  bool next(ScheduleAction& action);

 private:
  class Translation;
  std::unique_ptr<Translation> translation_;
};

// Throws what next would, at some time.
void check_checkpoint_schedules(const Plan& plan, std::int64_t steps);
// A line for each action. Nothing is written if some action cannot be said.
void write_checkpoint_schedules(const Plan& plan, std::int64_t steps, std::ostream& out);

}  // namespace ebb
