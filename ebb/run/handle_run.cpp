// SPDX-License-Identifier: Apache-2.0
#include "ebb/run/handle_run.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "ebb/core/error.h"
#include "ebb/run/walk.h"

namespace ebb {

struct HandleRun::State final : private PlanActor {
  State(HandleStep& handle_step, Chain given, std::shared_ptr<const Plan> made,
        const Ledger& ledger)
      : step(handle_step),
        chain(std::move(given)),
        plan(std::move(made)),
        account(ledger.open("run")),
        walk(*this, *plan, {}) {}

  void forward() {
    walk.forward();
    account.release(account.live() - std::min(account.live(), kept[0]));
  }

  std::int64_t begin() override {
    Measured& measured = walk.measured();
    measured.peak[0] = most();
    measured.tiers.resize(plan->machine.platform.tiers.size());
    kept.assign(measured.peak.size(), 0);
    account.charge(most());
    if (!unknown()) return chain.steps();
    return step.ended(0) ? 0 : Step::kUnknown;
  }
  void turn() override { account.charge(most() - account.live()); }
  void forget() noexcept override { account.release(account.live()); }

  void prepare(const Action& action) override {
    if (const auto* const record = std::get_if<Record>(&action)) {
      kept[0] += chain.tape_bytes(record->from, record->to);
    }
  }
  std::int64_t advance(const StepSpan& span) override {
    const std::int64_t reached = step.advance(span);
    if (reached <= span.from || reached > span.to) {
      fail(ErrorCode::invalid_argument, "run: advance from step ", span.from, " to ", span.to,
           " came to ", reached);
    }
    return reached;
  }
  void record(const StepSpan& span) override { step.record(span); }
  bool ended(std::int64_t reached, std::int64_t end) override {
    return reached != end || step.ended(reached);
  }

  std::int64_t reverse(std::int64_t from, std::int64_t to) override {
    step.reverse(from, to);
    kept[0] -= chain.tape_bytes(from, to);
    return from;
  }

  void copy(const Copy& action) override {
    const Bytes bytes = bytes_of(action.item, action.step);
    for (const Place slow : {action.from, action.to}) {
      if (slow.is_slow()) note_traffic(action, slow, bytes);
    }
    step.copy(action);
    if (action.to == Place::work) return;
    kept[index(action.to)] += bytes;
    if (!action.to.is_slow()) return;
    Bytes& peak = walk.measured().peak[index(action.to)];
    peak = std::max(peak, kept[index(action.to)]);
  }

  void drop(const Drop& action) override {
    step.drop(action);
    kept[index(action.place)] -= bytes_of(action.item, action.step);
  }
  Bytes held() const override { return kept[0]; }

  void note_traffic(const Copy& action, Place slow, Bytes bytes) {
    TierTraffic& tier = walk.measured().tiers[static_cast<std::size_t>(slow.tier())];
    TierTraffic::Direction& way = slow == action.to ? tier.written : tier.read;
    (action.item == Item::state ? way.states : way.tapes) += 1;
    way.bytes += bytes;
    way.stored += bytes;
  }

  bool unknown() const { return plan->length_unknown; }
  // Not chain.state(): a sequence of unknown length may be longer than the chain says.
  Bytes bytes_of(Item item, std::int64_t own) const {
    return item == Item::state ? chain.at(own).state : chain.at(own).tape;
  }
  // All of the budget where the length is unknown.
  Bytes most() const { return unknown() ? plan->machine.platform.fast : plan->prediction.peak[0]; }
  static std::size_t index(Place place) { return static_cast<std::size_t>(place.id - 1); }

  HandleStep& step;
  Chain chain;
  std::shared_ptr<const Plan> plan;
  Account account;
  PlanWalk walk;
  std::vector<Bytes> kept;  // [0]: fast, then the tiers
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
void HandleRun::backward() { state_->walk.backward(); }
void HandleRun::abandon() noexcept { state_->walk.abandon(); }
const Plan& HandleRun::plan() const { return *state_->plan; }

Report HandleRun::report() const {
  Report report;
  report.strategy = state_->plan->strategy;
  report.predicted = state_->plan->prediction;
  report.measured = state_->walk.measured();
  report.budget = state_->plan->machine.platform.fast;
  report.booked = state_->plan->prediction.peak[0];
  for (const Tier& tier : state_->plan->machine.platform.tiers) report.tiers.push_back(tier.name);
  return report;
}

}  // namespace ebb
