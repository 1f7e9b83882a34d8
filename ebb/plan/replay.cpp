// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/replay.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ebb/core/bytes.h"
#include "ebb/core/error.h"
#include "ebb/plan/action.h"
#include "ebb/plan/action_text.h"
#include "ebb/plan/held.h"
#include "ebb/plan/largest.h"

namespace ebb {
namespace {

class Replay {
 public:
  Replay(const Chain& chain, const Machine& machine, ReplayWatch* watch);

  std::int64_t live() const { return live_; }
  void take(const Action& action);
  Prediction end();

 private:
  void run(const Advance& action);
  void run(const Record& action);
  void run(const Reverse& action);
  void run(const Copy& action);
  void run(const Drop& action);

  void check_forward(std::int64_t from, std::int64_t to, const char* verb) const;
  void check_copy(const Copy& action) const;
  void check_place(Place place) const {
    const auto stores = static_cast<int>(stores_.size());
    if (place.id < 0 || place.id > stores) refuse("there is no ", name(place));
  }
  void pass(std::int64_t from, std::int64_t to, double seconds);
  void compute(double seconds);
  double transfer(const Copy& action, double ready);
  double turn(const Copy& action, Bytes bytes, double& clock, double seconds);
  void keep(const Copy& action, double arrival);
  void touch(const Copy& action, double until);

  Times* find(Item item, Place place, std::int64_t step);
  Times* find_source(const Copy& action);
  bool is_callers(Item item, Place place, std::int64_t step) const {
    return item == Item::state && place == Place::fast && step == 0 && !machine_.start_charged;
  }
  Bytes size(Item item, std::int64_t step) const {
    return item == Item::state ? chain_.state(step) : chain_.at(step).tape;
  }
  Bytes live_bytes() const { return live_ < left_ ? chain_.live(live_) : 0; }
  HeldPlace& store(Place place) { return stores_[static_cast<std::size_t>(place.id - 1)]; }
  HeldPlace& fast() { return stores_.front(); }

  void set_left(std::int64_t left);
  void note_tapes() { next_held_ = left_ > 0 && tapes_.holds(left_ - 1); }
  Bytes working_set(Bytes live, Bytes scratch) const;
  Bytes others() const;
  void note_fast();
  Bytes check_fast(Bytes live, Bytes scratch);
  void hold_fast(Bytes live, Bytes scratch);
  void tell_levels(const Reverse& action, Bytes live, Bytes held) const;
  void check_tier(Place place);
  void wait(double until);

  std::string name(Place place) const { return place_text(place, machine_.platform); }
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(ErrorCode::invalid_argument, "replay: action ", done_.actions, " (",
         action_text(*action_, machine_.platform), "): ", parts...);
  }

  const Chain& chain_;
  const Machine& machine_;
  ReplayWatch* const watch_;
  const Action* action_ = nullptr;
  Prediction done_;
  Largest largest_;

  double now_ = 0;         // the compute lane's clock
  std::int64_t live_ = 0;  // the step before which the live state is
  Times work_;
  Times resting_;  // stands for the times of items without transfers

  std::vector<HeldPlace> stores_;  // fast, then the slow tiers
  TapeRanges tapes_;               // all that are in fast
  std::int64_t left_ = 0;          // R: steps not yet reversed
  Bytes next_tape_ = 0;            // of step R-1
  Bytes next_set_ = 0;             // its tape and adjoint
  bool next_held_ = false;         // its tape is in fast
};

Replay::Replay(const Chain& chain, const Machine& machine, ReplayWatch* watch)
    : chain_(chain), machine_(machine), watch_(watch) {
  check_platform(machine.platform);
  if (machine.working && *machine.working < 0) {
    fail(ErrorCode::invalid_argument, "replay: the working set is ", *machine.working,
         " bytes; it must be 0 or more");
  }
  const std::vector<Tier>& tiers = machine.platform.tiers;
  stores_.resize(1 + tiers.size());
  fast().allowed = machine.platform.fast;
  for (std::size_t k = 0; k < tiers.size(); ++k) stores_[1 + k].allowed = tiers[k].capacity;
  done_.peak.assign(stores_.size(), 0);
  done_.moved.resize(tiers.size());
  set_left(chain.steps());
}

void Replay::take(const Action& action) {
  action_ = &action;
  std::visit([this](const auto& a) { run(a); }, action);
  ++done_.actions;
}

Prediction Replay::end() {
  if (left_ > 0) {
    fail(ErrorCode::invalid_argument, "replay: after the last action ", left_, " of ",
         chain_.steps(), " steps are not reversed");
  }
  const auto refuse_rest = [this](std::size_t i, const char* item, std::int64_t step) {
    fail(ErrorCode::invalid_argument, "replay: after the last action ",
         name(Place{static_cast<std::int8_t>(i + 1)}), " holds ", item, " ", step,
         "; a plan drops all it has kept");
  };
  if (!tapes_.empty()) refuse_rest(0, "tape", tapes_.any());
  for (std::size_t i = 0; i < stores_.size(); ++i) {
    if (!stores_[i].states.empty()) refuse_rest(i, "state", stores_[i].states.any());
    if (!stores_[i].tapes.empty()) refuse_rest(i, "tape", stores_[i].tapes.any());
  }
  done_.forwards = add_bytes(done_.advances, done_.records);
  done_.seconds = now_;
  return std::move(done_);
}

void Replay::check_forward(std::int64_t from, std::int64_t to, const char* verb) const {
  if (live_ != from) refuse("the live state is ", live_, "; ", verb, " must start there");
  if (from >= to) refuse("there are no steps in it; ", verb, " must run at least one");
  if (to > left_) {
    refuse(left_, " steps are left to reverse; ", verb, " must end at ", left_, " or before");
  }
}

// Runs steps [from,to) on the compute lane; their tapes, if any, are held already.
void Replay::pass(std::int64_t from, std::int64_t to, double seconds) {
  const Largest::Sizes most = largest_.over(chain_, from, to);
  hold_fast(std::max(most.live, chain_.live(to)), most.scratch);
  wait(work_.free);
  compute(seconds);
  live_ = to;
  work_ = {now_, now_};
}

// The action runs, seconds of its steps.
void Replay::compute(double seconds) {
  const double start = now_;
  now_ += chain_.call() + seconds;
  if (watch_ != nullptr) watch_->ran(*action_, start, now_);
}

void Replay::run(const Advance& action) {
  check_forward(action.from, action.to, "advance");
  pass(action.from, action.to, chain_.forward_seconds(action.from, action.to));
  done_.advances = add_bytes(done_.advances, action.to - action.from);
}

void Replay::run(const Record& action) {
  check_forward(action.from, action.to, "record");
  if (machine_.states_only && action.from != left_ - 1) {
    refuse("only states may be kept; record must run the step reversed next, ", left_ - 1,
           ", alone");
  }
  if (const std::int64_t held = tapes_.first_held(action.from); held < action.to) {
    refuse("fast holds tape ", held, " already");
  }
  tapes_.insert(action.from, action.to);
  fast().hold(chain_.tape_bytes(action.from, action.to));
  next_held_ = next_held_ || action.to == left_;
  pass(action.from, action.to, chain_.record_seconds(action.from, action.to));
  done_.records = add_bytes(done_.records, action.to - action.from);
}

void Replay::run(const Reverse& action) {
  if (action.from >= action.to || action.from < 0) {
    refuse("there are no such steps; reverse must run at least one, from 0 on");
  }
  if (action.to != left_) refuse(left_, " steps are left to reverse; reverse must end at ", left_);
  if (const std::int64_t missing = tapes_.last_missing(action.to); missing >= action.from) {
    refuse("fast does not hold tape ", missing);
  }
  // Of steps that weigh the same the first to be reversed has most tapes beside it, and under a
  // constant working set the first of any.
  const bool first_is_largest = chain_.is_uniform() || machine_.working.has_value();
  const Bytes live = live_bytes();
  const std::int64_t checked = first_is_largest ? action.to - 1 : action.from;
  const Bytes held = fast().bytes;
  for (std::int64_t step = action.to - 1; step >= checked; --step) {
    if (step + 1 < left_) set_left(step + 1);
    check_fast(live, chain_.at(step).scratch);
    fast().release(next_tape_);
  }
  fast().release(chain_.tape_bytes(action.from, checked));
  double free = 0;
  fast().tapes.visit(action.from, action.to, [&free](std::int64_t, const Times& times) {
    free = std::max(free, times.free);
  });
  wait(free);
  if (watch_ != nullptr) tell_levels(action, live, held);
  fast().tapes.erase(action.from, action.to);
  tapes_.erase(action.from, action.to);
  set_left(action.from);
  compute(chain_.backward_seconds(action.from, action.to));
  note_fast();
}

void Replay::check_copy(const Copy& action) const {
  check_place(action.from);
  check_place(action.to);
  if (action.from == action.to) refuse("source and destination are the same");
  if (action.from.is_slow() && action.to.is_slow()) {
    refuse("both places are slow; copy from one to the other by way of fast");
  }
  if (action.step < 0 || action.step >= chain_.steps()) {
    refuse("there is no such step; the chain has ", chain_.steps());
  }
  if (action.item == Item::state && action.step >= left_) {
    refuse(left_, " steps are left to reverse; only states below ", left_, " may be copied");
  }
  if (action.item == Item::state) return;
  if (machine_.states_only) refuse("only states may be kept; a tape is not copied");
  if (machine_.tapes_stay) refuse("tapes stay where they were recorded; none is copied");
  if (action.from == Place::work || action.to == Place::work) {
    refuse("work holds the live state; a tape is never there");
  }
}

void Replay::run(const Copy& action) {
  check_copy(action);
  const Times* const source = find_source(action);
  if (source == nullptr) refuse(name(action.from), " does not hold it");
  if (find(action.item, action.to, action.step) != nullptr) {
    refuse(name(action.to), " holds it already");
  }
  const double ready = source->ready;
  if (action.to == Place::work) wait(work_.free);
  const double arrival = transfer(action, ready);
  touch(action, arrival);
  const Bytes live = live_bytes();
  keep(action, arrival);
  hold_fast(std::max(live, live_bytes()), 0);
  if (action.to.is_slow()) check_tier(action.to);
}

// When the copied item arrives. The source is there at `ready`.
double Replay::transfer(const Copy& action, double ready) {
  const bool writes = action.to.is_slow();
  if (!writes && !action.from.is_slow()) {
    if (std::isinf(machine_.platform.copy_rate)) {
      double arrival = std::max(now_, ready);
      return turn(action, size(action.item, action.step), arrival, 0);
    }
    wait(ready);
    const Bytes bytes = size(action.item, action.step);
    return turn(action, bytes, now_, static_cast<double>(bytes) / machine_.platform.copy_rate);
  }
  const Place place = writes ? action.to : action.from;
  const auto k = static_cast<std::size_t>(place.tier());
  const Tier& tier = machine_.platform.tiers[k];
  const Bytes bytes = size(action.item, action.step);
  Bytes& moved = writes ? done_.moved[k].written : done_.moved[k].read;
  moved = add_bytes(moved, bytes);
  const double seconds = writes ? tier.write_seconds(bytes) : tier.read_seconds(bytes);
  if (machine_.sync) return turn(action, bytes, now_, seconds);
  double& lane = writes || !tier.duplex ? store(place).write_lane : store(place).read_lane;
  lane = std::max({lane, now_, ready});
  return turn(action, bytes, lane, seconds);
}

// Moves the clock of a lane by a transfer; returns when that ends.
double Replay::turn(const Copy& action, Bytes bytes, double& clock, double seconds) {
  const double start = clock;
  clock += seconds;
  if (watch_ != nullptr) watch_->copied(action, bytes, start, clock);
  return clock;
}

// The source of a copy is in use until then.
void Replay::touch(const Copy& action, double until) {
  if (until <= now_) return;
  Times* const source = find_source(action);
  if (source != &resting_) {
    source->free = std::max(source->free, until);
  } else if (!is_callers(action.item, action.from, action.step)) {
    const std::int64_t tape = action.item == Item::tape ? action.step : action.step - 1;
    fast().tapes.insert(tape, {0, until});
  }
}

void Replay::keep(const Copy& action, double arrival) {
  const Times times{arrival, arrival};
  if (action.to == Place::work) {
    live_ = action.step;
    work_ = times;
    return;
  }
  HeldPlace& held = store(action.to);
  held.hold(size(action.item, action.step));
  if (action.item == Item::state) {
    held.states.insert(action.step, times);
    return;
  }
  held.tapes.insert(action.step, times);
  if (action.to == Place::fast) {
    tapes_.insert(action.step, action.step + 1);
    note_tapes();
  }
}

void Replay::run(const Drop& action) {
  check_place(action.place);
  if (action.place == Place::work) refuse("the live state is overwritten, never dropped");
  if (is_callers(action.item, action.place, action.step)) {
    refuse("the initial state is the caller's own; it cannot be dropped");
  }
  const Times* const times = find(action.item, action.place, action.step);
  if (times == nullptr) refuse(name(action.place), " does not hold it");
  wait(times->free);
  hold_fast(live_bytes(), 0);
  HeldPlace& held = store(action.place);
  held.release(size(action.item, action.step));
  if (action.item == Item::state) {
    held.states.erase(action.step);
  } else {
    held.tapes.erase(action.step);
    if (action.place == Place::fast) {
      tapes_.erase(action.step, action.step + 1);
      note_tapes();
    }
  }
  if (action.place == Place::fast) {
    note_fast();
  } else if (watch_ != nullptr) {
    watch_->held(action.place, held.bytes, now_);
  }
}

// The times of an item; null when the place does not hold it, `resting_` when nothing is known to
// be under way.
Times* Replay::find(Item item, Place place, std::int64_t step) {
  if (step < 0 || step >= chain_.steps()) return nullptr;
  if (place == Place::work) return item == Item::state && live_ == step ? &work_ : nullptr;
  if (is_callers(item, place, step)) return &resting_;
  if (item == Item::state) return store(place).states.find(step);
  Times* const times = store(place).tapes.find(step);
  return times == nullptr && place == Place::fast && tapes_.holds(step) ? &resting_ : times;
}

Times* Replay::find_source(const Copy& action) {
  Times* const times = find(action.item, action.from, action.step);
  if (times != nullptr || action.item == Item::tape || action.from != Place::fast) return times;
  return find(Item::tape, Place::fast, action.step - 1);
}

void Replay::set_left(std::int64_t left) {
  left_ = left;
  next_tape_ = left > 0 ? chain_.at(left - 1).tape : 0;
  next_set_ = left > 0 ? add_bytes(next_tape_, chain_.at(left - 1).adjoint) : 0;
  note_tapes();
}

Bytes Replay::working_set(Bytes live, Bytes scratch) const {
  return machine_.working ? *machine_.working : add_bytes(add_bytes(live, scratch), next_set_);
}

// What fast holds beside the working set.
Bytes Replay::others() const {
  const Bytes held = stores_.front().bytes;
  return next_held_ && held != kUnlimited ? held - next_tape_ : held;
}

void Replay::note_fast() {
  if (watch_ == nullptr) return;
  watch_->held(Place::fast, add_bytes(working_set(live_bytes(), 0), others()), now_);
}

Bytes Replay::check_fast(Bytes live, Bytes scratch) {
  const Bytes working = working_set(live, scratch);
  const Bytes all = add_bytes(working, others());
  done_.peak[0] = std::max(done_.peak[0], all);
  if (all > fast().allowed) {
    refuse("fast holds ", all, " bytes, ", working, " of them the working set; ", fast().allowed,
           " are allowed");
  }
  return all;
}

void Replay::hold_fast(Bytes live, Bytes scratch) {
  const Bytes all = check_fast(live, scratch);
  if (watch_ != nullptr) watch_->held(Place::fast, all, now_);
}

// Before the action runs: what fast, which holds `held` bytes now, holds at each of its steps.
void Replay::tell_levels(const Reverse& action, Bytes live, Bytes held) const {
  double at = now_;
  for (std::int64_t step = action.to - 1; step >= action.from; --step) {
    const StepCost& own = chain_.at(step);
    const Bytes working = machine_.working ? *machine_.working
                                           : add_bytes(add_bytes(live, own.scratch),
                                                       add_bytes(own.tape, own.adjoint));
    watch_->held(Place::fast, add_bytes(working, held == kUnlimited ? kUnlimited : held - own.tape),
                 at);
    if (held != kUnlimited) held -= own.tape;
    at += chain_.backward_seconds(step, step + 1);
  }
}

void Replay::check_tier(Place place) {
  const HeldPlace& held = store(place);
  Bytes& peak = done_.peak[1 + static_cast<std::size_t>(place.tier())];
  peak = std::max(peak, held.bytes);
  if (watch_ != nullptr) watch_->held(place, held.bytes, now_);
  if (held.bytes > held.allowed) {
    refuse(name(place), " holds ", held.bytes, " bytes; ", held.allowed, " are allowed");
  }
}

void Replay::wait(double until) {
  if (until <= now_) return;
  done_.stall_seconds += until - now_;
  if (watch_ != nullptr) watch_->waited(now_, until);
  now_ = until;
}

}  // namespace

Prediction replay(const Chain& chain, const Machine& machine, Cursor& cursor,
                  const ReplayOptions& options) {
  Replay paper(chain, machine, options.watch);
  const std::int64_t steps = chain.steps();
  bool length_known = !options.length_unknown;
  if (!length_known && steps == 0) {
    length_known = true;
    cursor.finish(0);
  }
  Action action = Advance{0, 0};
  while (cursor.next(action)) {
    auto* const sweep = length_known ? nullptr : std::get_if<Advance>(&action);
    if (sweep == nullptr || sweep->to < steps) {
      paper.take(action);
      continue;
    }
    sweep->to = steps;
    if (sweep->from != steps || paper.live() != steps) paper.take(action);
    length_known = true;
    cursor.finish(steps);
  }
  return paper.end();
}

}  // namespace ebb
