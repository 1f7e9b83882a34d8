// SPDX-License-Identifier: Apache-2.0
// A run over steps whose states and tapes are not bytes but a caller's objects: tensors of a
// framework and its graphs, on any device. The plan says what to keep where and when to forget it;
// the Step keeps, moves and forgets. Bytes are what the chain says, and are charged to a ledger.
#pragma once

#include <cstdint>
#include <memory>

#include "ebb/device/ledger.h"
#include "ebb/plan/action.h"
#include "ebb/plan/chain.h"
#include "ebb/plan/plan.h"
#include "ebb/run/report.h"
#include "ebb/run/step.h"

namespace ebb {

// Called from one thread, never two at a time. What it throws ends the run and reaches the caller
// unchanged. Arithmetic must not depend on the range: then every plan gives the same bits.
class HandleStep {
 public:
  HandleStep() = default;
  HandleStep(const HandleStep&) = delete;
  HandleStep& operator=(const HandleStep&) = delete;
  virtual ~HandleStep() = default;

  // Runs the steps from the live state, which becomes the one before span.to. Returns span.to, or,
  // where the length is unknown and the sequence ended earlier, the step before which it did.
  virtual std::int64_t advance(const StepSpan& span) = 0;
  // The same, leaving a tape of each step.
  virtual void record(const StepSpan& span) = 0;
  // Reverses the steps, last first, and forgets their tapes. A live state from `from` on is not
  // used any more.
  virtual void reverse(std::int64_t from, std::int64_t to) = 0;
  // As plan/replay.h says. It may return before the transfer is done: whoever needs the item waits.
  virtual void copy(const Copy& copy) = 0;
  virtual void drop(const Drop& drop) = 0;
  // Where the length is unknown: whether the sequence ends before `step`, in the live state.
  virtual bool ended(std::int64_t step) {
    static_cast<void>(step);
    return false;
  }
};

// A Run over objects, such as a framework's tensors, instead of bytes in memory.
class HandleRun {
 public:
  // make_plan made the plan for this chain. The Step must outlive the run. While forward or backward
  // runs, the plan's peak in fast memory is charged to the ledger, and between them what is kept.
  HandleRun(HandleStep& step, Chain chain, std::shared_ptr<const Plan> plan, const Ledger& ledger);
  ~HandleRun();
  HandleRun(HandleRun&&) noexcept;
  HandleRun& operator=(HandleRun&&) noexcept;

  // Up to where the last step has first run; the live state before the first step is there. May be
  // called again at any time, after an exception too: the run begins anew, and the Step has
  // forgotten what it kept. Throws what the Step throws and Error(out_of_budget).
  void forward();
  // Once after each forward.
  void backward();
  // Forgets a forward whose backward will not come: nothing is charged any more.
  void abandon() noexcept;

  const Plan& plan() const;
  // Of the last backward. The peak of fast memory is what was charged: what the objects really
  // took only the Step can know.
  Report report() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ebb
