// SPDX-License-Identifier: Apache-2.0
#include "ebb/run/walk.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "ebb/core/clock.h"
#include "ebb/core/error.h"

namespace ebb {
namespace {

// Progress and cancellation do not wait longer than about this for a range of steps.
constexpr double kPieceSeconds = 0.02;
constexpr std::int64_t kLongestPiece = 1 << 20;

}  // namespace

PlanWalk::PlanWalk(PlanActor& actor, const Plan& plan, WalkSetup setup)
    : actor_(actor), first_plan_(plan), plan_(&plan), setup_(std::move(setup)) {}

void PlanWalk::abandon() noexcept {
  phase_ = Phase::idle;
  cursor_.reset();
  actor_.forget();
}

// What an exception leaves is forgotten, so that the next forward begins anew.
template <class Work>
void PlanWalk::guarded(const Work& work) {
  try {
    work();
  } catch (...) {
    abandon();
    throw;
  }
}

void PlanWalk::reset() {
  plan_ = &first_plan_;
  live_ = frontier_ = forwards_before_plan_ = 0;
  piece_ = setup_.in_pieces ? 1 : kEndless;
  since_look_ = 0;
  told_ = -std::numeric_limits<double>::infinity();
  measured_ = {};
  measured_.peak.assign(1 + plan_->machine.platform.tiers.size(), 0);
  measured_.first_states.resize(measured_.peak.size());
  for (auto& steps : measured_.first_states) steps.reserve(Measured::kStatesNamed);
}

void PlanWalk::forward() {
  abandon();
  reset();
  began_ = looked_ = seconds_now();
  guarded([&] {
    steps_ = actor_.begin();
    left_ = steps_ == Step::kUnknown ? kEndless : steps_;
    phase_ = steps_ == 0 ? Phase::between : Phase::forward;
    if (steps_ != 0) cursor_ = plan_->cursor();
    Action action = Advance{0, 0};
    while (phase_ == Phase::forward) {
      if (!cursor_->next(action)) {
        fail(ErrorCode::invalid_argument, "run: the plan ends after ", frontier_, " steps");
      }
      take(action);
    }
  });
  measured_.seconds = seconds_now() - began_;
}

void PlanWalk::check_forward_done() const {
  if (phase_ == Phase::between) return;
  fail(ErrorCode::invalid_argument,
       "run: backward comes once after each forward that ended; there was none");
}

void PlanWalk::backward() {
  check_forward_done();
  measured_.steps = steps_;
  looked_ = seconds_now();
  began_ = looked_ - measured_.seconds;
  guarded([&] {
    actor_.turn();
    phase_ = Phase::backward;
    Action action = Advance{0, 0};
    while (steps_ > 0 && cursor_->next(action)) take(action);
    if (left_ != 0) {
      fail(ErrorCode::invalid_argument, "run: the plan ends with ", left_, " steps not reversed");
    }
    actor_.end();
    const double time = seconds_now();
    measured_.seconds = time - began_;
    if (setup_.progress && steps_ > 0) tell(time);
  });
  abandon();
}

void PlanWalk::take(const Action& action) {
  if (const Plan* const other = actor_.other_plan(action)) {
    go_on_with(*other);
    return;
  }
  actor_.prepare(action);
  std::visit([this](const auto& a) { run(a); }, action);
  ++measured_.actions;
}

void PlanWalk::go_on_with(const Plan& plan) {
  plan_ = &plan;
  cursor_ = plan.cursor();
  live_ = 0;
  forwards_before_plan_ = measured_.forwards();
}

void PlanWalk::run(const Record& action) {
  pass(action.from, action.to, true);
  measured_.tapes_kept += action.to - action.from;
}

// Runs [from,to) in pieces: first runs apart from repeats, and none so long that there is no news of
// it.
void PlanWalk::pass(std::int64_t from, std::int64_t to, bool records) {
  while (from < to) {
    std::int64_t end = std::min(to, from + piece_);
    if (from < frontier_) end = std::min(end, frontier_);
    const StepSpan span{from, end, from >= frontier_};
    std::int64_t reached = end;
    if (records) {
      actor_.record(span);
    } else {
      reached = actor_.advance(span);
    }
    (records ? measured_.records : measured_.advances) += reached - from;
    live_ = reached;
    frontier_ = std::max(frontier_, reached);
    if (steps_ == Step::kUnknown && actor_.ended(reached, end)) finish(reached);
    if (frontier_ == steps_ && phase_ == Phase::forward) phase_ = Phase::between;
    count(reached - from);
    if (live_ == steps_) return;
    if (reached != end) {
      fail(ErrorCode::invalid_argument, "run: the step's advance from ", from, " to ", end,
           " came to ", reached, ", where nothing ends");
    }
    from = reached;
  }
}

// The length is known now.
void PlanWalk::finish(std::int64_t steps) {
  steps_ = left_ = steps;
  cursor_->finish(steps);
}

void PlanWalk::run(const Reverse& action) {
  std::int64_t to = action.to;
  while (to > action.from) {
    const std::int64_t from = actor_.reverse(std::max(action.from, to - piece_), to);
    left_ = from;
    count(to - from);
    to = from;
  }
}

void PlanWalk::run(const Copy& action) {
  if (action.to == Place::work) {
    live_ = action.step;
    actor_.copy(action);
    return;
  }
  actor_.copy(action);
  const bool is_state = action.item == Item::state;
  if (action.to == Place::fast) (is_state ? measured_.states_kept : measured_.tapes_kept) += 1;
  if (is_state) {
    auto& named = measured_.first_states[static_cast<std::size_t>(action.to.id - 1)];
    if (named.size() < Measured::kStatesNamed) named.push_back(action.step);
  }
}

void PlanWalk::count(std::int64_t steps) {
  if (!setup_.in_pieces) return;
  since_look_ += steps;
  if (since_look_ >= piece_) look_up();
}

void PlanWalk::look_up() {
  if (setup_.stop.stop_requested()) {
    fail(ErrorCode::cancelled, "run: cancelled after ", measured_.forwards(), " forward steps");
  }
  const double time = seconds_now();
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

void PlanWalk::tell(double time) {
  told_ = time;
  Progress progress;
  progress.backward = phase_ == Phase::backward;
  progress.steps = std::max<std::int64_t>(steps_, 0);
  progress.forwards = measured_.forwards();
  progress.all_forwards =
      plan_->length_unknown ? 0 : forwards_before_plan_ + plan_->prediction.forwards;
  progress.reversed = steps_ == Step::kUnknown ? 0 : steps_ - left_;
  progress.seconds = time - began_;
  progress.held = actor_.held();
  progress.budget = plan_->machine.platform.fast;
  setup_.progress(progress);
}

}  // namespace ebb
