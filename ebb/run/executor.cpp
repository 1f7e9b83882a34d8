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
