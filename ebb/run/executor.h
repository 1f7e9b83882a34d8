// SPDX-License-Identifier: Apache-2.0
// The executor: carries out a plan's actions on a Step. What each action means is written in
// plan/replay.h; which comes next is PlanWalk's business, where bytes lie that of Holdings.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "ebb/codec/fields.h"
#include "ebb/core/error.h"
#include "ebb/plan/chain.h"
#include "ebb/plan/plan.h"
#include "ebb/run/holdings.h"
#include "ebb/run/measured.h"
#include "ebb/run/step.h"
#include "ebb/run/walk.h"

namespace ebb {

// A plan for steps [0,n), of all that is not reversed yet, and the memory it takes.
struct NextPlan {
  std::shared_ptr<const Plan> plan;
  HoldingsSetup holdings;
};

struct ExecutorSetup {
  HoldingsSetup holdings;
  // How states are kept outside `work`; null: as they are. The chain's state bytes are of the kept
  // form. Must outlive the executor.
  const FieldCodec* state_codec = nullptr;
  // Every item passes the tiers' transforms; else only states that a codec keeps.
  bool transforms_all = false;
  WalkSetup walk = {};
  // Asked when a tier has failed: what to do without it with the steps left, or Step::kUnknown of
  // them. None: go on as before, and compute again what the tier loses.
  std::function<std::optional<NextPlan>(int tier, const std::string& why, std::int64_t left)>
      replan = {};
};

class Executor final : private PlanActor {
 public:
  // The step, the chain and the plan must outlive it.
  Executor(Step& step, const Chain& chain, const Plan& plan, const ExecutorSetup& setup);

  // Up to where the last step has first run; `final` gets the state after it. `initial` stays as it
  // is until backward is done. Throws whatever the step throws, Error(cancelled), Error(io) for
  // what could not be made good; the executor can begin again after any of them.
  void forward(std::span<const std::byte> initial, std::span<std::byte> final);
  // `adjoint` is the gradient with respect to the final state; `initial_adjoint` gets the one with
  // respect to the initial state. Once after each forward.
  void backward(std::span<const std::byte> adjoint, std::span<std::byte> initial_adjoint);

  const Measured& measured() const { return walk_.measured(); }
  // A tier failed since the last forward, and what was left was planned anew.
  bool changed_plan() const { return plan_ != &first_plan_; }
  void set_stop(std::stop_token stop) { walk_.set_stop(std::move(stop)); }

 private:
  using Name = Holdings::Name;

  std::int64_t begin() override;
  void turn() override;
  void end() override;
  void forget() noexcept override { held_.clear(); }
  const Plan* other_plan(const Action& action) override;
  void prepare(const Action& action) override;
  std::int64_t advance(const StepSpan& span) override;
  void record(const StepSpan& span) override;
  std::int64_t reverse(std::int64_t from, std::int64_t to) override;
  void copy(const Copy& action) override;
  void drop(const Drop& action) override { held_.drop({action.item, action.place, action.step}); }
  bool ended(std::int64_t reached, std::int64_t end) override;
  Bytes held() const override { return held_.used(); }

  void await(const Action& action);
  void hold_live();
  void make_room(const Record& action);
  void gather(const Reverse& action);
  // One call of the step, in the memory that is there. Returns where it came to.
  template <class Call>
  std::int64_t call(TraceEvent::Kind kind, std::int64_t from, std::int64_t to, const Call& call);

  // Copies (copies.cpp).
  void load(const Copy& action);
  void add(const Name& name, Bytes bytes);
  void save(const Copy& action);
  // A state that can be read in fast memory or in `work`.
  struct Source {
    std::byte* bytes = nullptr;
    std::optional<Name> holder;  // none: the caller's own
    bool kept = false;           // in the form that a codec keeps, of an item's size
  };
  Source source_of(Place place, std::int64_t step);
  Source source_in_tape(std::int64_t step);
  // It has arrived and can be used.
  bool whole(const std::optional<Name>& holder);
  void into_work(const Source& source, std::int64_t step);
  void into_item(const Source& source, std::int64_t step, std::byte* item);
  std::span<std::byte> live_span(std::int64_t step) const;
  bool transforms(Item item, bool kept) const {
    return setup_.transforms_all || (item == Item::state && setup_.state_codec != nullptr && !kept);
  }

  // Recovery (recovery.cpp).
  void recover_work(std::int64_t step);
  void recover_tape(std::int64_t step);
  std::int64_t load_nearest(std::int64_t step);
  void mend(std::int64_t step);
  [[noreturn]] void give_up(Item item, std::int64_t step, const Error& error) const;

  bool is_callers(Place place, std::int64_t step) const {
    return place == Place::fast && step == 0 && !plan_->machine.start_charged;
  }
  std::size_t raw_state(std::int64_t step) const {
    return static_cast<std::size_t>(step_.bytes(step).state);
  }
  Bytes scratch_bytes(std::int64_t from, std::int64_t to) const;
  void note_peak();
  void note(TraceEvent::Kind kind, double start, std::int64_t from, std::int64_t to);

  Step& step_;
  const Chain& chain_;
  const Plan& first_plan_;
  const Plan* plan_;
  std::shared_ptr<const Plan> next_plan_;  // keeps it
  ExecutorSetup setup_;
  Holdings held_;
  PlanWalk walk_;
  std::vector<std::int64_t> broken_tapes_;
  std::span<const std::byte> initial_, adjoint_;
  std::span<std::byte> final_, initial_adjoint_;
};

}  // namespace ebb
