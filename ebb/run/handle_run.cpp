// SPDX-License-Identifier: Apache-2.0
#include "ebb/run/handle_run.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>
#include <variant>
#include <vector>

#include "ebb/core/error.h"

namespace ebb {
namespace {

constexpr std::int64_t kEndless = std::numeric_limits<std::int64_t>::max() / 2;

double now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(time).count();
}

}  // namespace

struct HandleRun::State {
  enum class Phase { idle, forward, between, backward };

  State(HandleStep& handle_step, Chain given, std::shared_ptr<const Plan> made,
        const Ledger& ledger)
      : step(handle_step),
        chain(std::move(given)),
        plan(std::move(made)),
        account(ledger.open("run")) {}

  bool unknown() const { return plan->length_unknown; }

  void forward() {
    abandon();
    measured = {};
    measured.peak.assign(1 + plan->machine.platform.tiers.size(), 0);
    measured.peak[0] = most();
    measured.tiers.resize(plan->machine.platform.tiers.size());
    measured.first_states.resize(measured.peak.size());
    held.assign(measured.peak.size(), 0);
    known = !unknown();
    left = known ? chain.steps() : kEndless;
    live = frontier = 0;
    const double start = now();
    guarded([&] {
      account.charge(most());
      phase = Phase::forward;
      cursor = plan->cursor();
      if (!known && step.ended(0)) finish(0);
      if (left == 0) phase = Phase::between;
      while (phase == Phase::forward) {
        Action action = Advance{0, 0};
        if (!cursor->next(action)) {
          fail(ErrorCode::invalid_argument, "run: the plan ends after ", frontier, " steps");
        }
        take(action);
      }
      account.release(account.live() - std::min(account.live(), held[0]));
    });
    measured.seconds = now() - start;
  }

  void backward() {
    if (phase != Phase::between) {
      fail(ErrorCode::invalid_argument,
           "run: backward comes once after each forward that ended; there was none");
    }
    const double start = now();
    measured.steps = left;
    guarded([&] {
      account.charge(most() - account.live());
      phase = Phase::backward;
      Action action = Advance{0, 0};
      while (left > 0 && cursor->next(action)) take(action);
      while (cursor->next(action)) take(action);
      if (left != 0) {
        fail(ErrorCode::invalid_argument, "run: the plan ends with ", left, " steps not reversed");
      }
    });
    measured.seconds += now() - start;
    abandon();
  }

  void abandon() noexcept {
    phase = Phase::idle;
    cursor.reset();
    account.release(account.live());
  }

  // What an exception leaves is forgotten, so that the next forward begins anew.
  template <class Work>
  void guarded(const Work& work) {
    try {
      work();
    } catch (...) {
      abandon();
      throw;
    }
  }

  void take(const Action& action) {
    std::visit([this](const auto& a) { run(a); }, action);
    ++measured.actions;
  }

  void run(const Advance& action) { pass(action.from, action.to, false); }

  void run(const Record& action) {
    held[0] += chain.tape_bytes(action.from, action.to);
    measured.tapes_kept += action.to - action.from;
    pass(action.from, action.to, true);
  }

  // First runs apart from repeats.
  void pass(std::int64_t from, std::int64_t to, bool records) {
    while (from < to) {
      const std::int64_t end = from < frontier ? std::min(to, frontier) : to;
      const StepSpan span{from, end, from >= frontier};
      std::int64_t reached = end;
      if (records) {
        step.record(span);
      } else {
        reached = step.advance(span);
      }
      if (reached <= from || reached > end || (reached != end && known)) {
        fail(ErrorCode::invalid_argument, "run: advance from step ", from, " to ", end, " came to ",
             reached);
      }
      (records ? measured.records : measured.advances) += reached - from;
      live = reached;
      frontier = std::max(frontier, reached);
      if (!known && (reached != end || step.ended(reached))) finish(reached);
      if (frontier == left && phase == Phase::forward) phase = Phase::between;
      if (live == left) return;
      from = reached;
    }
  }

  // The length is known now.
  void finish(std::int64_t steps) {
    left = steps;
    known = true;
    cursor->finish(steps);
  }

  void run(const Reverse& action) {
    step.reverse(action.from, action.to);
    held[0] -= chain.tape_bytes(action.from, action.to);
    left = action.from;
  }

  void run(const Copy& action) {
    const bool is_state = action.item == Item::state;
    const Bytes bytes = bytes_of(action.item, action.step);
    if (action.to != Place::work) held[place(action.to)] += bytes;
    if (action.to == Place::fast) (is_state ? measured.states_kept : measured.tapes_kept) += 1;
    if (is_state && action.to != Place::work) {
      auto& named = measured.first_states[place(action.to)];
      if (named.size() < Measured::kStatesNamed) named.push_back(action.step);
    }
    for (const Place slow : {action.from, action.to}) {
      if (!slow.is_slow()) continue;
      TierTraffic& tier = measured.tiers[static_cast<std::size_t>(slow.tier())];
      TierTraffic::Direction& way = slow == action.to ? tier.written : tier.read;
      (is_state ? way.states : way.tapes) += 1;
      way.bytes += bytes;
      way.stored += bytes;
    }
    step.copy(action);
    if (action.to == Place::work) live = action.step;
    if (action.to.is_slow()) {
      Bytes& peak = measured.peak[place(action.to)];
      peak = std::max(peak, held[place(action.to)]);
    }
  }

  void run(const Drop& action) {
    step.drop(action);
    held[place(action.place)] -= bytes_of(action.item, action.step);
  }

  // Not chain.state(): a sequence of unknown length may be longer than the chain says.
  Bytes bytes_of(Item item, std::int64_t index) const {
    return item == Item::state ? chain.at(index).state : chain.at(index).tape;
  }
  // All of the budget where nobody knows how long it will be.
  Bytes most() const { return unknown() ? plan->machine.platform.fast : plan->prediction.peak[0]; }
  static std::size_t place(Place at) { return static_cast<std::size_t>(at.id - 1); }
  HandleStep& step;
  Chain chain;
  std::shared_ptr<const Plan> plan;
  Account account;
  Phase phase = Phase::idle;
  std::unique_ptr<Cursor> cursor;
  Measured measured;
  std::vector<Bytes> held;  // [0]: fast, then the tiers
  bool known = true;        // the length
  std::int64_t left = 0, live = 0, frontier = 0;
};

HandleRun::HandleRun(HandleStep& step, Chain chain, std::shared_ptr<const Plan> plan,
                     const Ledger& ledger) {
  if (plan == nullptr) fail(ErrorCode::invalid_argument, "run: there is no plan");
  if (plan->prediction.peak.size() != 1 + plan->machine.platform.tiers.size()) {
    fail(ErrorCode::invalid_argument, "run: the plan has no prediction; make_plan gives one");
  }
  state_ = std::make_unique<State>(step, std::move(chain), std::move(plan), ledger);
}
HandleRun::~HandleRun() = default;
HandleRun::HandleRun(HandleRun&&) noexcept = default;
HandleRun& HandleRun::operator=(HandleRun&&) noexcept = default;

void HandleRun::forward() { state_->forward(); }
void HandleRun::backward() { state_->backward(); }
void HandleRun::abandon() noexcept { state_->abandon(); }
const Plan& HandleRun::plan() const { return *state_->plan; }

Report HandleRun::report() const {
  Report report;
  report.strategy = state_->plan->strategy;
  report.predicted = state_->plan->prediction;
  report.measured = state_->measured;
  report.budget = state_->plan->machine.platform.fast;
  report.booked = state_->plan->prediction.peak[0];
  for (const Tier& tier : state_->plan->machine.platform.tiers) report.tiers.push_back(tier.name);
  return report;
}

}  // namespace ebb
