// SPDX-License-Identifier: Apache-2.0
// What the executor does when something kept cannot be read: it computes it again.
#include <algorithm>
#include <cstring>

#include "ebb/core/error.h"
#include "ebb/run/executor.h"

namespace ebb {

void Executor::give_up(Item item, std::int64_t step, const Error& error) const {
  const std::vector<std::string>& failures = held_.failures();
  fail(ErrorCode::io, "run: ", item == Item::state ? "state " : "tape ", step,
       " could not be kept (", failures.empty() ? "no failure noted" : failures.back(),
       ") and there is no room to compute it again: ", error.what(), ". Allow a larger budget");
}

// Puts state `step` into `work` although its copy cannot be used: from the nearest state before it
// that can. Those forwards are counted apart.
void Executor::recover_work(std::int64_t step) {
  const double start = setup_.holdings.trace != nullptr ? held_.now() : 0;
  held_.wait_free(held_.work_holding());
  std::int64_t from = -1;
  while (from < 0) from = load_nearest(step);
  held_.work_holding().broken = false;
  const std::int64_t nearest = from;
  while (from < step) {
    const std::int64_t end = std::min(step, from + walk_.piece());
    try {
      std::byte* const scratch = held_.take_scratch(scratch_bytes(from, end));
      step_.advance({from, end, false}, held_.work(), scratch);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::out_of_budget) throw;
      give_up(Item::state, step, error);
    }
    held_.give_scratch();
    walk_.measured().extra_forwards += end - from;
    walk_.count(end - from);
    from = end;
  }
  note(TraceEvent::Kind::recover, start, nearest, step);
  mend(step);
}

// A broken copy of the state now in `work` is made good in fast memory.
void Executor::mend(std::int64_t step) {
  Holding* const kept = held_.find({Item::state, Place::fast, step});
  if (kept == nullptr || !kept->broken) return;
  held_.wait_free(*kept);
  into_item(source_of(Place::work, step), step, held_.bytes_of(*kept));
  kept->broken = false;
}

// Tries the latest state not after `step` that is not known to be broken. Returns it, or -1 when
// that one turned out to be broken too.
std::int64_t Executor::load_nearest(std::int64_t step) {
  // The caller's own state is always there.
  std::int64_t best = 0;
  Place place = Place::work;
  bool in_tape = false;
  held_.visit_states([&](Place at, std::int64_t held) {
    if (held > step || held < best || (held == best && place != Place::work && at.is_slow()))
      return;
    best = held;
    place = at;
  });
  held_.visit_tapes([&](std::int64_t from, std::int64_t to) {
    for (std::int64_t after = std::min(to, step); after > std::max(from, best); --after) {
      const Holding* const tape = held_.find({Item::tape, Place::fast, after - 1});
      if (tape != nullptr && tape->broken) continue;
      best = after;
      place = Place::fast;
      in_tape = true;
    }
  });
  if (place == Place::work) {
    std::memcpy(held_.work(), initial_.data(), initial_.size());
    return 0;
  }
  if (place.is_slow()) {
    const bool read = held_.read_now({Item::state, place, best}, live_span(best),
                                     transforms(Item::state, false), chain_.at(best).state);
    return read ? best : -1;
  }
  const Source source = in_tape ? source_in_tape(best) : source_of(Place::fast, best);
  if (!whole(source.holder)) return -1;
  into_work(source, best);
  return best;
}

// Records `step` again into the room that its tape has in fast memory. `work` is used for that and
// put back.
void Executor::recover_tape(std::int64_t step) {
  const std::int64_t live = walk_.live();
  const bool had_work = held_.has_work();
  try {
    held_.need_work();
    recover_work(step);
    std::byte* const scratch = held_.take_scratch(scratch_bytes(step, step + 1));
    const Holdings::TapeRun run = held_.tapes_up_to(step, step);
    step_.record({step, step + 1, false}, held_.work(), run.tapes, scratch);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::out_of_budget) throw;
    give_up(Item::tape, step, error);
  }
  held_.give_scratch();
  walk_.measured().extra_forwards += 1;
  held_.tape_holding(step).broken = false;
  if (had_work) {
    recover_work(live);
  } else {
    held_.free_work();
  }
}

}  // namespace ebb
