// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/judged.h"

#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "ebb/core/error.h"
#include "ebb/plan/replay.h"

namespace ebb {
namespace {

// Gives up on plans that are too long to compare.
class ShortCursor : public Cursor {
 public:
  explicit ShortCursor(std::unique_ptr<Cursor> cursor) : cursor_(std::move(cursor)) {}
  bool next(Action& action) override {
    if (++taken_ > kMost) {
      fail(ErrorCode::unavailable, "the plan has more than ", kMost,
           " actions, too many to predict; take strategy revolve, a larger budget or larger steps");
    }
    return cursor_->next(action);
  }
  void finish(std::int64_t n) override { cursor_->finish(n); }

 private:
  // Some seconds of replay.
  static constexpr std::int64_t kMost = 40'000'000;
  std::unique_ptr<Cursor> cursor_;
  std::int64_t taken_ = 0;
};

}  // namespace

Problem problem_for(const Row& row, const Chain& chain, const Platform& platform,
                    const PlanOptions& o) {
  Problem p{chain, {platform, o.working}, o, chain.typical()};
  p.machine.sync = o.sync;
  p.machine.tapes_stay = o.tapes_stay;
  p.machine.start_charged = row.traits.charges_start;
  if (o.budget) p.machine.platform.fast = *o.budget;
  if (o.slots) {
    p.machine.platform.fast = scale_bytes(p.step.state, *o.slots);
    p.machine.working = 0;
    p.machine.start_charged = true;
    p.machine.states_only = true;
  }
  return p;
}

bool can_serve(const Row& row, const Problem& p) {
  if (row.row.needs_tier && p.tiers().empty()) return false;
  return !(p.options.slots && row.row.keeps_tapes);
}

Plan judged(const Row& row, const Problem& p, Draft draft) {
  Plan plan;
  plan.strategy = row.row.name;
  plan.parameters = std::move(draft.parameters);
  plan.optimal = draft.optimal;
  plan.machine = p.machine;
  plan.length_unknown = p.options.length_unknown;
  plan.set_start(std::move(draft.start));
  if (draft.forecast) {
    plan.prediction = std::move(*draft.forecast);
  } else {
    ShortCursor cursor(plan.cursor());
    plan.prediction = replay(p.chain, p.machine, cursor, {p.options.length_unknown});
  }
  return plan;
}

Bound without_rounding(Bound bound, double seconds) {
  if (bound.seconds > seconds && bound.seconds <= seconds * (1 + 1e-9)) bound.seconds = seconds;
  return bound;
}

void refuse(const Row& row, const Problem& p, Bytes least) {
  std::ostringstream text;
  text << "strategy " << row.row.name << " does not fit: ";
  if (least == kUnlimited) {
    text << "no budget helps, since the slow tiers cannot hold what it keeps there";
    throw Error(ErrorCode::infeasible_budget, text.str(), {},
                "give a tier more capacity, or take strategy auto");
  }
  if (p.options.slots) {
    const std::int64_t slots = least / p.step.state;
    text << "it needs at least " << slots << (slots == 1 ? " slot" : " slots") << ", there are "
         << *p.options.slots;
    throw Error(ErrorCode::infeasible_budget, text.str(), least,
                "raise slots, or add a slow tier and take h_revolve");
  }
  text << "it needs at least " << least << " bytes (" << format_bytes(least)
       << ") of memory, the budget is " << p.machine.platform.fast << " ("
       << format_bytes(p.machine.platform.fast) << ")";
  throw Error(ErrorCode::infeasible_budget, text.str(), least,
              row.is_auto() ? "raise the budget, or take a smaller step"
                            : "raise the budget, or take strategy auto or a smaller step");
}

}  // namespace ebb
