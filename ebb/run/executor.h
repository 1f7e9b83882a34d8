// SPDX-License-Identifier: Apache-2.0
// The executor: carries out a plan's actions on a Step. What each action means is written in
// plan/replay.h; where bytes lie is Holdings' business.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "ebb/codec/fields.h"
#include "ebb/core/error.h"
#include "ebb/plan/chain.h"
#include "ebb/plan/plan.h"
#include "ebb/run/holdings.h"
#include "ebb/run/measured.h"
#include "ebb/run/progress.h"
#include "ebb/run/step.h"

namespace ebb {

struct ExecutorSetup {
  HoldingsSetup holdings;
  // How states are kept outside `work`; null: as they are. The chain's state bytes are of the kept
  // form. Must outlive the executor.
  const FieldCodec* state_codec = nullptr;
  // Every item passes the tiers' transforms; else only states that a codec keeps.
  bool transforms_all = false;
  std::stop_token stop = {};
  std::function<void(const Progress&)> progress = {};
  double progress_seconds = 0.1;
};

class Executor {
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

  const Measured& measured() const { return measured_; }
  void set_stop(std::stop_token stop) { setup_.stop = std::move(stop); }

 private:
  enum class Phase { idle, forward, between, backward };
  using Name = Holdings::Name;

  void take(const Action& action);
  void run(const Advance& action);
  void run(const Record& action);
  void run(const Reverse& action);
  void run(const Copy& action);
  void run(const Drop& action) { held_.drop({action.item, action.place, action.step}); }

  // Forward.
  void hold_live();
  void pass(std::int64_t from, std::int64_t to, bool records);
  std::int64_t call(const StepSpan& span, bool records);
  void finish(std::int64_t steps);
  void hand_out();

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
    return place == Place::fast && step == 0 && !plan_.machine.start_charged;
  }
  std::size_t raw_state(std::int64_t step) const {
    return static_cast<std::size_t>(step_.bytes(step).state);
  }
  Bytes scratch_bytes(std::int64_t from, std::int64_t to) const;
  void note_peak();
  void note(TraceEvent::Kind kind, double start, std::int64_t from, std::int64_t to);
  void count(std::int64_t steps);
  void look_up();
  void tell(double time);
  template <class Work>
  void guarded(const Work& work);

  Step& step_;
  const Chain& chain_;
  const Plan& plan_;
  ExecutorSetup setup_;
  Holdings held_;
  Measured measured_;
  std::vector<std::int64_t> broken_tapes_;

  Phase phase_ = Phase::idle;
  std::unique_ptr<Cursor> cursor_;
  std::span<const std::byte> initial_;
  std::span<std::byte> final_;
  std::int64_t steps_ = 0;     // Step::kUnknown until found
  std::int64_t live_ = 0;      // `work` holds the state before this step
  std::int64_t left_ = 0;      // steps not yet reversed
  std::int64_t frontier_ = 0;  // the first step that has never run
  // Clocks are read only so often: every `piece_` steps, which take about kPieceSeconds.
  std::int64_t piece_ = 1, since_look_ = 0;
  double began_ = 0, looked_ = 0, told_ = 0;
};

}  // namespace ebb
