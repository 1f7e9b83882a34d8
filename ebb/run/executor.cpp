// SPDX-License-Identifier: Apache-2.0
#include "ebb/run/executor.h"

#include <algorithm>
#include <cstring>
#include <variant>

#include "ebb/core/error.h"

namespace ebb {
namespace {

void check_size(const char* what, std::size_t given, Bytes wanted) {
  if (static_cast<Bytes>(given) == wanted) return;
  fail(ErrorCode::invalid_argument, "run: ", what, " has ", given, " bytes; the step says ",
       wanted);
}

}  // namespace

Executor::Executor(Step& step, const Chain& chain, const Plan& plan, const ExecutorSetup& setup)
    : step_(step),
      chain_(chain),
      first_plan_(plan),
      plan_(&plan),
      setup_(setup),
      held_(setup.holdings),
      walk_(*this, plan, setup.walk) {}

void Executor::forward(std::span<const std::byte> initial, std::span<std::byte> final) {
  initial_ = initial;
  final_ = final;
  plan_ = &first_plan_;
  walk_.forward();
  std::memcpy(final.data(), walk_.steps() == 0 ? initial.data() : held_.work(), final.size());
}

void Executor::backward(std::span<const std::byte> adjoint, std::span<std::byte> initial_adjoint) {
  walk_.check_forward_done();
  check_size("the adjoint", adjoint.size(), step_.final_bytes());
  check_size("the initial adjoint", initial_adjoint.size(), static_cast<Bytes>(initial_.size()));
  adjoint_ = adjoint;
  initial_adjoint_ = initial_adjoint;
  walk_.backward();
}

std::int64_t Executor::begin() {
  const std::int64_t steps = step_.steps();
  check_size("the final state", final_.size(), step_.final_bytes());
  check_size("the initial state", initial_.size(),
             steps == 0 ? step_.final_bytes() : step_.bytes(0).state);
  if (initial_.data() < final_.data() + final_.size() &&
      final_.data() < initial_.data() + initial_.size()) {
    fail(ErrorCode::invalid_argument,
         "run: initial and final state overlap; the initial one is needed until backward returns");
  }
  step_.begin();
  if (steps == 0 || (steps == Step::kUnknown && step_.ended(0, initial_.data()))) return 0;
  held_.need_adjoint();
  held_.need_work();
  std::memcpy(held_.work(), initial_.data(), initial_.size());
  return steps;
}

void Executor::turn() {
  std::byte* const to = walk_.steps() == 0 ? initial_adjoint_.data() : held_.adjoint();
  std::memcpy(to, adjoint_.data(), adjoint_.size());
}

void Executor::end() {
  if (walk_.steps() > 0) {
    std::memcpy(initial_adjoint_.data(), held_.adjoint(), initial_adjoint_.size());
  }
  Measured& measured = walk_.measured();
  measured.stall_seconds = held_.stalled();
  measured.tiers = held_.traffic();
  measured.closed_gaps = held_.closed_gaps();
  measured.failed_transfers = held_.failed();
  measured.failures = held_.failures();
}

// What the action needs has arrived, or is known to be lost.
void Executor::await(const Action& action) {
  if (const auto* const reverse = std::get_if<Reverse>(&action)) {
    held_.visit_tape_holdings(reverse->from, reverse->to,
                              [this](std::int64_t, Holding& tape) { held_.wait_free(tape); });
    return;
  }
  const auto* const copy = std::get_if<Copy>(&action);
  const bool from_work = copy != nullptr && copy->from == Place::work;
  const bool runs =
      std::holds_alternative<Advance>(action) || std::holds_alternative<Record>(action);
  if (held_.has_work() && (from_work || runs)) held_.wait_ready(held_.work_holding());
}

// All is forgotten, also what other places hold: the new plan runs each step at most once more than one
// that would go on from there.
const Plan* Executor::other_plan(const Action& action) {
  if (!setup_.replan || (walk_.steps() != Step::kUnknown && walk_.left() == 0)) return nullptr;
  await(action);
  const int tier = held_.take_failed_tier();
  if (tier < 0) return nullptr;
  const std::int64_t left = walk_.steps() == Step::kUnknown ? Step::kUnknown : walk_.left();
  std::optional<NextPlan> next = setup_.replan(tier, held_.failures().back(), left);
  if (!next) return nullptr;
  next_plan_ = std::move(next->plan);
  plan_ = next_plan_.get();
  setup_.holdings = std::move(next->holdings);
  held_.reopen(setup_.holdings);
  held_.need_work();
  std::memcpy(held_.work(), initial_.data(), initial_.size());
  return plan_;
}

void Executor::prepare(const Action& action) {
  // A live state from which nothing can be run any more takes no room.
  if (walk_.live() >= walk_.left() && held_.has_work()) held_.free_work();
  if (std::holds_alternative<Advance>(action)) {
    hold_live();
  } else if (const auto* const record = std::get_if<Record>(&action)) {
    hold_live();
    make_room(*record);
  } else if (const auto* const reverse = std::get_if<Reverse>(&action)) {
    gather(*reverse);
  }
}

// The live state has arrived, is whole, and is no longer read.
void Executor::hold_live() {
  held_.wait_free(held_.work_holding());
  if (held_.work_holding().broken) recover_work(walk_.live());
}

void Executor::make_room(const Record& action) {
  if (chain_.is_uniform()) {
    held_.add_tapes(action.from, action.to, chain_.at(action.from).tape);
    return;
  }
  for (std::int64_t step = action.from; step < action.to; ++step) {
    held_.add_tapes(step, step + 1, chain_.at(step).tape);
  }
}

// The tapes have arrived and are whole.
void Executor::gather(const Reverse& action) {
  broken_tapes_.clear();
  held_.visit_tape_holdings(action.from, action.to, [this](std::int64_t step, Holding& tape) {
    held_.wait_free(tape);
    if (tape.broken) broken_tapes_.push_back(step);
  });
  for (const std::int64_t step : broken_tapes_) recover_tape(step);
}

// Addresses are taken last: making room may move what is held.
template <class Call>
std::int64_t Executor::call(TraceEvent::Kind kind, std::int64_t from, std::int64_t to,
                            const Call& call) {
  std::byte* const scratch = held_.take_scratch(scratch_bytes(from, to));
  note_peak();
  const double start = setup_.holdings.trace != nullptr ? held_.now() : 0;
  const std::int64_t reached = call(scratch);
  held_.give_scratch();
  note(kind, start, from, reached);
  return reached;
}

std::int64_t Executor::advance(const StepSpan& span) {
  return call(TraceEvent::Kind::advance, span.from, span.to,
              [&](std::byte* scratch) { return step_.advance(span, held_.work(), scratch); });
}

void Executor::record(const StepSpan& span) {
  // Tapes of different sizes lie apart.
  const std::int64_t most = chain_.is_uniform() ? span.to - span.from : 1;
  for (std::int64_t from = span.from; from < span.to; from += most) {
    const StepSpan part{from, from + most, span.first};
    call(TraceEvent::Kind::record, part.from, part.to, [&](std::byte* scratch) {
      const Holdings::TapeRun run = held_.tapes_up_to(part.from, part.to - 1);
      step_.record(part, held_.work(), run.tapes, scratch);
      return part.to;
    });
  }
}

bool Executor::ended(std::int64_t reached, std::int64_t) {
  return step_.ended(reached, held_.work());
}

std::int64_t Executor::reverse(std::int64_t from, std::int64_t to) {
  const std::int64_t first = held_.tapes_up_to(from, to - 1).from;
  call(TraceEvent::Kind::reverse, first, to, [&](std::byte* scratch) {
    step_.reverse(first, to, held_.tapes_up_to(first, to - 1).tapes, held_.adjoint(), scratch);
    return to;
  });
  held_.drop_tapes(first, to);
  return first;
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
  const std::int64_t left = walk_.left();
  const bool next = left > 0 && left != PlanWalk::kEndless;
  const bool next_held = next && held_.has_tape(left - 1);
  const Bytes next_tape = left > 0 ? chain_.at(next ? left - 1 : 0).tape : 0;
  Bytes all = 0;
  if (plan_->machine.working) {
    all = *plan_->machine.working + held_.items() - (next_held ? next_tape : 0);
  } else {
    all = held_.used() + (next_held ? 0 : next_tape);
  }
  Bytes& peak = walk_.measured().peak[0];
  peak = std::max(peak, all);
}

void Executor::note(TraceEvent::Kind kind, double start, std::int64_t from, std::int64_t to) {
  Trace* const trace = setup_.holdings.trace;
  if (trace == nullptr) return;
  trace->add({.kind = kind, .start = start, .end = held_.now(), .from = from, .to = to});
}

}  // namespace ebb
