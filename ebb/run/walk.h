// SPDX-License-Identifier: Apache-2.0
// Walks through a plan, forward until the last step has first run and backward from there: whose
// turn it is, how far it has come, what it has done so far. What the five actions do to states and
// tapes is the actor's business, whether these are bytes or objects of somebody else.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <stop_token>
#include <utility>

#include "ebb/core/bytes.h"
#include "ebb/plan/plan.h"
#include "ebb/run/measured.h"
#include "ebb/run/progress.h"
#include "ebb/run/step.h"

namespace ebb {

// Carries out actions as plan/replay.h says. What it throws ends the walk and reaches the caller.
class PlanActor {
 public:
  PlanActor() = default;
  PlanActor(const PlanActor&) = delete;
  PlanActor& operator=(const PlanActor&) = delete;
  virtual ~PlanActor() = default;

  // Gets ready for the first action. Returns how many steps there are, or Step::kUnknown.
  virtual std::int64_t begin() = 0;
  // Gets ready for the way back, and takes home what it has brought.
  virtual void turn() = 0;
  virtual void end() {}
  // Forgets what it holds; after every way back and every exception.
  virtual void forget() noexcept = 0;

  // Before each action, and before what it needs is made good: null, or another plan for all steps
  // that are not reversed yet, to go on with in place of this action. The actor then holds nothing but
  // the live state before step 0.
  virtual const Plan* other_plan(const Action& action) {
    static_cast<void>(action);
    return nullptr;
  }
  // After that; its steps may then come in several calls.
  virtual void prepare(const Action& action) = 0;
  // Returns where it came to, which is before span.to only if the sequence ended there.
  virtual std::int64_t advance(const StepSpan& span) = 0;
  virtual void record(const StepSpan& span) = 0;
  // Reverses the last of steps [from,to), as many as one call can. Returns the first of them.
  virtual std::int64_t reverse(std::int64_t from, std::int64_t to) = 0;
  virtual void copy(const Copy& action) = 0;
  virtual void drop(const Drop& action) = 0;
  // Where the length is unknown: whether the sequence ends before the step that was reached by a
  // call that was to come to `end`.
  virtual bool ended(std::int64_t reached, std::int64_t end) = 0;

  // Bytes in fast memory, for progress.
  virtual Bytes held() const = 0;
};

struct WalkSetup {
  // Ranges of steps come in pieces of about 20 ms, after which progress and cancellation are looked
  // at; else each in one call.
  bool in_pieces = false;
  std::stop_token stop = {};
  std::function<void(const Progress&)> progress = {};
  double progress_seconds = 0.1;
};

class PlanWalk {
 public:
  static constexpr std::int64_t kEndless = std::numeric_limits<std::int64_t>::max() / 2;

  // Both must outlive it.
  PlanWalk(PlanActor& actor, const Plan& plan, WalkSetup setup);

  // Up to where the last step has first run. May be called again at any time, after an exception
  // too: the walk begins anew.
  void forward();
  // Once after each forward.
  void backward();
  // What backward does first; for callers who have to check something else before it.
  void check_forward_done() const;
  // Forgets a forward whose backward will not come.
  void abandon() noexcept;

  // The actor adds what only it can know.
  Measured& measured() { return measured_; }
  const Measured& measured() const { return measured_; }
  void set_stop(std::stop_token stop) { setup_.stop = std::move(stop); }

  std::int64_t steps() const { return steps_; }  // Step::kUnknown until found
  std::int64_t live() const { return live_; }    // the live state is the one before this step
  std::int64_t left() const { return left_; }    // steps not yet reversed; kEndless until known
  std::int64_t frontier() const { return frontier_; }  // the first step that has never run
  // How many steps a call should have at most, and that this many have run or been reversed: every
  // so often that throws Error(cancelled) or tells the progress.
  std::int64_t piece() const { return piece_; }
  void count(std::int64_t steps);

 private:
  enum class Phase { idle, forward, between, backward };

  template <class Work>
  void guarded(const Work& work);
  void reset();
  void take(const Action& action);
  void go_on_with(const Plan& plan);
  void run(const Advance& action) { pass(action.from, action.to, false); }
  void run(const Record& action);
  void run(const Reverse& action);
  void run(const Copy& action);
  void run(const Drop& action) { actor_.drop(action); }
  void pass(std::int64_t from, std::int64_t to, bool records);
  void finish(std::int64_t steps);
  void look_up();
  void tell(double time);

  PlanActor& actor_;
  const Plan& first_plan_;
  const Plan* plan_;
  WalkSetup setup_;
  Measured measured_;
  Phase phase_ = Phase::idle;
  std::unique_ptr<Cursor> cursor_;
  std::int64_t steps_ = 0, live_ = 0, left_ = 0, frontier_ = 0;
  std::int64_t forwards_before_plan_ = 0;  // that earlier plans of this walk ran
  // Clocks are read only so often: every `piece_` steps, which take about kPieceSeconds.
  std::int64_t piece_ = 1, since_look_ = 0;
  double began_ = 0, looked_ = 0, told_ = 0;
};

}  // namespace ebb
