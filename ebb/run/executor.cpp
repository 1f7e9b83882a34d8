// SPDX-License-Identifier: Apache-2.0
#include "ebb/run/executor.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>
#include <variant>

#include "ebb/core/error.h"

namespace ebb {
namespace {

// Progress and cancellation do not wait longer than about this for a range of steps.
constexpr double kPieceSeconds = 0.02;
constexpr std::int64_t kLongestPiece = 1 << 20;
constexpr std::int64_t kEndless = std::numeric_limits<std::int64_t>::max() / 2;

std::span<std::byte> span(std::byte* data, Bytes bytes) {
  return {data, static_cast<std::size_t>(bytes)};
}

void check_size(const char* what, std::size_t given, Bytes wanted) {
  if (static_cast<Bytes>(given) == wanted) return;
  fail(ErrorCode::invalid_argument, "run: ", what, " has ", given, " bytes; the step says ",
       wanted);
}

}  // namespace

Executor::Executor(Step& step, const Chain& chain, const Plan& plan, const ExecutorSetup& setup)
    : step_(step), chain_(chain), plan_(plan), setup_(setup), held_(setup.holdings) {}

// What an exception leaves is forgotten, so that the next forward begins anew.
template <class Work>
void Executor::guarded(const Work& work) {
  try {
    work();
  } catch (...) {
    phase_ = Phase::idle;
    held_.clear();
    cursor_.reset();
    throw;
  }
}

void Executor::forward(std::span<const std::byte> initial, std::span<std::byte> final) {
  phase_ = Phase::idle;
  held_.clear();
  measured_ = {};
  steps_ = step_.steps();
  check_size("the final state", final.size(), step_.final_bytes());
  check_size("the initial state", initial.size(),
             steps_ == 0 ? step_.final_bytes() : step_.bytes(0).state);
  if (initial.data() < final.data() + final.size() &&
      final.data() < initial.data() + initial.size()) {
    fail(ErrorCode::invalid_argument,
         "run: initial and final state overlap; the initial one is needed until backward returns");
  }
  initial_ = initial;
  final_ = final;
  left_ = steps_ == Step::kUnknown ? kEndless : steps_;
  live_ = frontier_ = 0;
  piece_ = 1;
  since_look_ = 0;
  began_ = looked_ = held_.now();
  told_ = -std::numeric_limits<double>::infinity();
  measured_.peak.assign(1 + plan_.machine.platform.tiers.size(), 0);
  measured_.first_states.resize(measured_.peak.size());
  for (auto& steps : measured_.first_states) steps.reserve(Measured::kStatesNamed);
  guarded([&] {
    phase_ = Phase::forward;
    step_.begin();
    if (steps_ == Step::kUnknown && step_.ended(0, initial.data())) steps_ = left_ = 0;
    if (steps_ == 0) {
      std::memcpy(final.data(), initial.data(), final.size());
      phase_ = Phase::between;
      return;
    }
    cursor_ = plan_.cursor();
    held_.need_adjoint();
    held_.need_work();
    std::memcpy(held_.work(), initial.data(), initial.size());
    Action action = Advance{0, 0};
    while (phase_ == Phase::forward) {
      if (!cursor_->next(action)) {
        fail(ErrorCode::invalid_argument, "run: the plan ends after ", frontier_, " of ", steps_,
             " steps");
      }
      take(action);
    }
  });
  measured_.seconds = held_.now() - began_;
}

void Executor::backward(std::span<const std::byte> adjoint, std::span<std::byte> initial_adjoint) {
  if (phase_ != Phase::between) {
    fail(ErrorCode::invalid_argument,
         "run: backward comes once after each forward that ended; there was none");
  }
  check_size("the adjoint", adjoint.size(), step_.final_bytes());
  check_size("the initial adjoint", initial_adjoint.size(), static_cast<Bytes>(initial_.size()));
  began_ = held_.now() - measured_.seconds;
  looked_ = held_.now();
  guarded([&] {
    phase_ = Phase::backward;
    if (steps_ == 0) {
      std::memcpy(initial_adjoint.data(), adjoint.data(), adjoint.size());
      return;
    }
    std::memcpy(held_.adjoint(), adjoint.data(), adjoint.size());
    Action action = Advance{0, 0};
    while (cursor_->next(action)) take(action);
    if (left_ != 0) {
      fail(ErrorCode::invalid_argument, "run: the plan ends with ", left_, " steps not reversed");
    }
    std::memcpy(initial_adjoint.data(), held_.adjoint(), initial_adjoint.size());
  });
  measured_.steps = steps_;
  measured_.seconds = held_.now() - began_;
  if (setup_.progress && steps_ > 0) tell(held_.now());
  measured_.stall_seconds = held_.stalled();
  measured_.tiers = held_.traffic();
  measured_.closed_gaps = held_.closed_gaps();
  measured_.failed_transfers = held_.failed();
  measured_.failures = held_.failures();
  cursor_.reset();
  held_.clear();
  phase_ = Phase::idle;
}

void Executor::take(const Action& action) {
  // A live state from which nothing can be run any more takes no room.
  if (live_ >= left_ && held_.has_work()) held_.free_work();
  std::visit([this](const auto& a) { run(a); }, action);
  ++measured_.actions;
}

void Executor::run(const Advance& action) {
  hold_live();
  pass(action.from, action.to, false);
}

void Executor::run(const Record& action) {
  hold_live();
  if (chain_.is_uniform()) {
    held_.add_tapes(action.from, action.to, chain_.at(action.from).tape);
  } else {
    for (std::int64_t step = action.from; step < action.to; ++step) {
      held_.add_tapes(step, step + 1, chain_.at(step).tape);
    }
  }
  pass(action.from, action.to, true);
  measured_.tapes_kept += action.to - action.from;
}

// The live state has arrived, is whole, and nobody reads it any more.
void Executor::hold_live() {
  held_.wait_free(held_.work_holding());
  if (held_.work_holding().broken) recover_work(live_);
}

// Runs [from,to) in pieces: first runs apart from repeats, and none so long that nobody hears of
// it.
void Executor::pass(std::int64_t from, std::int64_t to, bool records) {
  while (from < to) {
    std::int64_t end = std::min(to, from + piece_);
    if (from < frontier_) end = std::min(end, frontier_);
    // Tapes of different sizes lie apart.
    if (records && !chain_.is_uniform()) end = from + 1;
    const std::int64_t reached = call({from, end, from >= frontier_}, records);
    (records ? measured_.records : measured_.advances) += reached - from;
    live_ = reached;
    frontier_ = std::max(frontier_, reached);
    if (steps_ == Step::kUnknown && step_.ended(reached, held_.work())) finish(reached);
    if (frontier_ == steps_ && phase_ == Phase::forward) hand_out();
    count(reached - from);
    if (live_ == steps_) return;
    if (reached != end) {
      fail(ErrorCode::invalid_argument, "run: the step's advance stopped before step ", reached,
           " of ", end, ", where nothing ends");
    }
    from = reached;
  }
}

// One call of the step, in the memory that is there. Addresses are taken last: making room may move
// what is held.
std::int64_t Executor::call(const StepSpan& range, bool records) {
  std::byte* const scratch = held_.take_scratch(scratch_bytes(range.from, range.to));
  note_peak();
  const double start = setup_.holdings.trace != nullptr ? held_.now() : 0;
  std::int64_t reached = range.to;
  if (records) {
    const Holdings::TapeRun run = held_.tapes_up_to(range.from, range.to - 1);
    step_.record(range, held_.work(), run.tapes, scratch);
  } else {
    reached = step_.advance(range, held_.work(), scratch);
  }
  held_.give_scratch();
  note(records ? TraceEvent::Kind::record : TraceEvent::Kind::advance, start, range.from, reached);
  return reached;
}

// The length is known now.
void Executor::finish(std::int64_t steps) {
  steps_ = left_ = steps;
  cursor_->finish(steps);
}

void Executor::hand_out() {
  std::memcpy(final_.data(), held_.work(), final_.size());
  phase_ = Phase::between;
}

void Executor::run(const Reverse& action) {
  broken_tapes_.clear();
  held_.visit_tape_holdings(action.from, action.to, [this](std::int64_t step, Holding& tape) {
    held_.wait_free(tape);
    if (tape.broken) broken_tapes_.push_back(step);
  });
  for (const std::int64_t step : broken_tapes_) recover_tape(step);
  std::int64_t to = action.to;
  while (to > action.from) {
    const std::int64_t from = held_.tapes_up_to(std::max(action.from, to - piece_), to - 1).from;
    std::byte* const scratch = held_.take_scratch(scratch_bytes(from, to));
    note_peak();
    const double start = setup_.holdings.trace != nullptr ? held_.now() : 0;
    step_.reverse(from, to, held_.tapes_up_to(from, to - 1).tapes, held_.adjoint(), scratch);
    held_.give_scratch();
    note(TraceEvent::Kind::reverse, start, from, to);
    held_.drop_tapes(from, to);
    left_ = from;
    count(to - from);
    to = from;
  }
}

void Executor::run(const Copy& action) {
  if (action.to == Place::work) {
    load(action);
  } else {
    save(action);
  }
  note_peak();
  if (!action.to.is_slow()) return;
  const int tier = action.to.tier();
  Bytes& peak = measured_.peak[1 + static_cast<std::size_t>(tier)];
  peak = std::max(peak, held_.held(tier));
}

// Into the live state.
void Executor::load(const Copy& action) {
  if (held_.has_work()) held_.wait_free(held_.work_holding());
  held_.need_work();
  held_.work_holding().broken = false;
  live_ = action.step;
  const Name from{Item::state, action.from, action.step};
  if (!action.from.is_slow()) {
    const Source source = source_of(Place::fast, action.step);
    if (whole(source.holder)) {
      into_work(source, action.step);
    } else {
      recover_work(action.step);
    }
    return;
  }
  if (!whole(from)) {
    recover_work(action.step);
    return;
  }
  held_.get(from, {Item::state, Place::work, action.step}, live_span(action.step),
            transforms(Item::state, false), chain_.at(action.step).state);
  if (plan_.machine.sync) held_.wait_ready(held_.work_holding());
}

// The memory of `work` that a transfer moves: all of an item's size, for the sake of direct I/O, or
// what a codec makes of it.
std::span<std::byte> Executor::live_span(std::int64_t step) const {
  return setup_.state_codec != nullptr ? span(held_.work(), static_cast<Bytes>(raw_state(step)))
                                       : span(held_.work(), chain_.at(step).state);
}

// Out of the live state or fast memory, or from a tier into fast memory.
void Executor::save(const Copy& action) {
  const bool is_state = action.item == Item::state;
  const Name from{action.item, action.from, action.step};
  const Name to{action.item, action.to, action.step};
  // Not chain_.state: a sequence of unknown length may be longer than the chain says.
  const StepCost& cost = chain_.at(action.step);
  const Bytes bytes = is_state ? cost.state : cost.tape;
  if (action.from == Place::work) {
    held_.wait_ready(held_.work_holding());
    if (held_.work_holding().broken) recover_work(live_);
  }
  if (!is_state && action.to == Place::fast) {
    held_.add_tapes(action.step, action.step + 1, bytes);
  } else {
    add(to, bytes);
  }
  if (action.to == Place::fast) (is_state ? measured_.states_kept : measured_.tapes_kept) += 1;
  if (is_state) {
    auto& named = measured_.first_states[static_cast<std::size_t>(action.to.id - 1)];
    if (named.size() < Measured::kStatesNamed) named.push_back(action.step);
  }

  Source source{.holder = from, .kept = true};
  if (is_state && !action.from.is_slow()) source = source_of(action.from, action.step);
  Holding& arrives = to.item == Item::tape && to.place == Place::fast ? held_.tape_holding(to.step)
                                                                      : *held_.find(to);
  if (action.from != Place::work && !whole(source.holder)) {
    arrives.broken = true;
    return;
  }
  if (action.to == Place::fast && !action.from.is_slow()) {
    into_item(source, action.step, held_.bytes_of(*held_.find(to)));
    return;
  }
  const bool transform = transforms(action.item, source.kept);
  if (action.from.is_slow()) {
    std::byte* const item =
        is_state ? held_.bytes_of(arrives) : held_.tapes_up_to(action.step, action.step).tapes.data;
    held_.get(from, to, span(item, bytes), transform, bytes);
  } else if (!is_state) {
    const std::byte* const item = held_.tapes_up_to(action.step, action.step).tapes.data;
    held_.put(&from, to, {item, static_cast<std::size_t>(bytes)}, transform, bytes);
  } else {
    // States inside a tape and the caller's own have no padding.
    const bool padded = source.kept || (action.from == Place::work && !setup_.state_codec);
    held_.put(source.holder ? &*source.holder : nullptr, to,
              {source.bytes, padded ? static_cast<std::size_t>(bytes) : raw_state(action.step)},
              transform, bytes);
  }
  if (plan_.machine.sync) {
    held_.wait_ready(action.item == Item::tape && to.place == Place::fast
                         ? held_.tape_holding(to.step)
                         : *held_.find(to));
  }
}

// Only where the length is unknown can a tier turn out to be too small.
void Executor::add(const Name& name, Bytes bytes) {
  try {
    held_.add(name, bytes);
  } catch (const Error& error) {
    if (!plan_.length_unknown || error.code() != ErrorCode::out_of_budget) throw;
    const std::string place =
        name.place.is_slow()
            ? "tier '" +
                  plan_.machine.platform.tiers[static_cast<std::size_t>(name.place.tier())].name +
                  "'"
            : std::string("fast memory");
    fail(ErrorCode::out_of_budget, "run: ", place, " is full after ", frontier_,
         " steps: ", error.what(), ". Give it a larger capacity, or expect more steps");
  }
}

Executor::Source Executor::source_of(Place place, std::int64_t step) {
  if (place == Place::work) return {held_.work(), Name{Item::state, Place::work, step}, false};
  const Name own{Item::state, Place::fast, step};
  if (const Holding* const held = held_.find(own)) return {held_.bytes_of(*held), own, true};
  if (is_callers(place, step)) return {const_cast<std::byte*>(initial_.data()), {}, false};
  return source_in_tape(step);
}

// The tape of a step holds the state after it.
Executor::Source Executor::source_in_tape(std::int64_t step) {
  std::byte* const tape = held_.tapes_up_to(step - 1, step - 1).tapes.data;
  return {tape + step_.state_in_tape(step - 1), Name{Item::tape, Place::fast, step - 1}, false};
}

bool Executor::whole(const std::optional<Name>& holder) {
  if (!holder) return true;
  Holding* const held = held_.find(*holder);
  if (held == nullptr) return true;
  held_.wait_ready(*held);
  return !held->broken;
}

void Executor::into_work(const Source& source, std::int64_t step) {
  const std::size_t raw = raw_state(step);
  if (source.kept && setup_.state_codec != nullptr) {
    setup_.state_codec->decode(span(source.bytes, setup_.state_codec->encoded_bytes()),
                               {held_.work(), raw});
  } else {
    std::memcpy(held_.work(), source.bytes, raw);
  }
}

void Executor::into_item(const Source& source, std::int64_t step, std::byte* item) {
  const std::size_t raw = raw_state(step);
  if (!source.kept && setup_.state_codec != nullptr) {
    setup_.state_codec->encode({source.bytes, raw},
                               span(item, setup_.state_codec->encoded_bytes()));
  } else {
    std::memcpy(item, source.bytes, raw);
  }
}

Bytes Executor::scratch_bytes(std::int64_t from, std::int64_t to) const {
  if (chain_.is_uniform()) return chain_.at(0).scratch;
  Bytes most = 0;
  for (std::int64_t step = from; step < to; ++step) {
    most = std::max(most, chain_.at(step).scratch);
  }
  return most;
}

// As replay counts: room for the tape that is reversed next is always kept.
void Executor::note_peak() {
  const bool next = left_ > 0 && left_ != kEndless;
  const bool next_held = next && held_.has_tape(left_ - 1);
  const Bytes next_tape = left_ > 0 ? chain_.at(next ? left_ - 1 : 0).tape : 0;
  Bytes all = 0;
  if (plan_.machine.working) {
    all = *plan_.machine.working + held_.items() - (next_held ? next_tape : 0);
  } else {
    all = held_.used() + (next_held ? 0 : next_tape);
  }
  measured_.peak[0] = std::max(measured_.peak[0], all);
}

void Executor::note(TraceEvent::Kind kind, double start, std::int64_t from, std::int64_t to) {
  Trace* const trace = setup_.holdings.trace;
  if (trace == nullptr) return;
  trace->add({.kind = kind, .start = start, .end = held_.now(), .from = from, .to = to});
}

void Executor::count(std::int64_t steps) {
  since_look_ += steps;
  if (since_look_ >= piece_) look_up();
}

void Executor::look_up() {
  if (setup_.stop.stop_requested()) {
    fail(ErrorCode::cancelled, "run: cancelled after ", measured_.forwards(), " forward steps");
  }
  const double time = held_.now();
  const double each = (time - looked_) / static_cast<double>(since_look_);
  const std::int64_t fitting =
      each * static_cast<double>(kLongestPiece) <= kPieceSeconds
          ? kLongestPiece
          : std::max(std::int64_t{1}, static_cast<std::int64_t>(kPieceSeconds / each));
  // Slowly: one cheap step says nothing of the others.
  piece_ = std::min(fitting, 2 * piece_);
  looked_ = time;
  since_look_ = 0;
  if (setup_.progress && time >= told_ + setup_.progress_seconds) tell(time);
}

void Executor::tell(double time) {
  told_ = time;
  Progress progress;
  progress.backward = phase_ == Phase::backward;
  progress.steps = std::max<std::int64_t>(steps_, 0);
  progress.forwards = measured_.forwards();
  progress.all_forwards = plan_.length_unknown ? 0 : plan_.prediction.forwards;
  progress.reversed = steps_ == Step::kUnknown ? 0 : steps_ - left_;
  progress.seconds = time - began_;
  progress.held = held_.used();
  progress.budget = plan_.machine.platform.fast;
  setup_.progress(progress);
}

}  // namespace ebb
