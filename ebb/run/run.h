// SPDX-License-Identifier: Apache-2.0
// A run: a plan executed. Hand it a Step and a budget for each memory and it gives exact gradients,
// with states and tapes going to slow tiers behind the computation.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "ebb/device/ledger.h"
#include "ebb/plan/chain.h"
#include "ebb/plan/plan.h"
#include "ebb/plan/platform.h"
#include "ebb/run/profile.h"
#include "ebb/run/progress.h"
#include "ebb/run/report.h"
#include "ebb/run/step.h"
#include "ebb/store/slow_tier.h"

namespace ebb {

// What a Run may use, how it plans, and what it reports on the way.
struct RunOptions {
  // Bytes of fast memory that the run may hold.
  Bytes budget = kUnlimited;
  std::vector<SlowTier> tiers = {};  // nearest first
  // The memory is taken by the first forward instead of when the run is made: to ask for a plan only.
  bool memory_late = false;

  // Only time and memory count: tiers that keep nothing (null_tier) are allowed, gradients are wrong then, and
  // the report says so. Otherwise such tiers are refused.
  bool timing_only = false;

  // How to plan; see PlanOptions. For a Step of unknown length "auto" is async with tiers and online
  // without.
  std::string strategy = "auto";
  std::optional<std::int64_t> slots = {};
  std::vector<std::int64_t> intervals = {};
  std::optional<std::int64_t> period = {};
  bool sync = false;
  // A plan made by the caller for `chain` instead; it is replayed first.
  std::optional<Plan> plan = {};

  // What profile() found. Without them the step, copies and the tiers are measured when the run is made.
  // Only the chain's seconds are used: bytes are the Step's.
  std::optional<Chain> chain = {};
  std::optional<Platform> platform = {};
  ProfileOptions profile = {};

  // Codecs by their words (codec/codec.h, codec/fields.h). For tapes: of fixed size; a lossy one
  // makes gradients approximate, and the report says by how much. For states: of fixed size; the
  // forward restarts from them. For transfers: lossless ones that shorten what goes to slow tiers
  // (zstd, lz4, events). A state codec and a transfer codec exclude each other.
  std::string tape_codec = {};
  std::string state_codec = {};
  std::string transfer_codec = {};
  // With a lossy codec: gradients are compared with exact ones over the first steps, before the
  // first forward.
  bool measure_codec_error = true;

  // Shared with other runs: all of them together stay within it. Without one the run has its own,
  // which the budget limits.
  std::optional<Ledger> ledger = {};
  // The same for the memory of slow tiers.
  std::optional<Ledger> host_ledger = {};

  // For finding mistakes in a Step: each step is called by itself, in memory of exactly the sizes it
  // said, and a write beyond is Error(invalid_argument) that names the step and the item. Plan and bits
  // stay the same; it takes time, and the memory of one step beside the budget.
  bool check_writes = false;

  std::function<void(const Progress&)> progress = {};
  double progress_seconds = 0.1;  // at most so often
  std::stop_token stop = {};      // ends forward or backward with Error(cancelled)
  std::size_t trace_events = 0;   // how many the trace may hold; 0: no trace
  // When transfers were slower or faster than the plan assumes by more than this factor, the report
  // says so and the next forward plans anew with what was measured. 0: never plans anew.
  double replan_factor = 2;
};

// Executes a plan on a Step, in memory and slow tiers: forward, then backward, with exact gradients. Use a Run
// and its Step (a Network is one) from one thread at a time. Several Runs, each with its own Step, may work on several
// threads and share a Ledger. Planning functions may be called from any thread.
class Run {
 public:
  // Measures what was not given, plans and takes the memory. The Step must outlive the run. Throws
  // Error(infeasible_budget) with the least budget that works, Error(invalid_argument) for options
  // or a Step that cannot be, Error(out_of_budget) if a shared ledger refuses, Error(io) for tiers.
  Run(Step& step, RunOptions options);
  ~Run();
  Run(Run&&) noexcept;
  Run& operator=(Run&&) noexcept;

  // Runs the steps from `initial`; `final` gets the state after the last. `initial` must stay as it
  // is until backward returns, and may not overlap `final`. May be called again at any time, after
  // an exception too: the run begins anew.
  void forward(std::span<const std::byte> initial, std::span<std::byte> final);
  // Once after each forward: from the gradient with respect to the final state to the one with
  // respect to the initial state. Gradients of parameters and inputs are in the Step then.
  void backward(std::span<const std::byte> adjoint, std::span<std::byte> initial_adjoint);
  // The same over arrays and vectors of numbers.
  // What is passed for `initial` must outlive the call: no temporaries.
  template <std::ranges::contiguous_range In, std::ranges::contiguous_range Out>
    requires std::ranges::borrowed_range<In>
  void forward(In&& initial, Out&& final) {
    forward(std::span<const std::byte>(std::as_bytes(std::span(initial))),
            std::span<std::byte>(std::as_writable_bytes(std::span(final))));
  }
  template <std::ranges::contiguous_range In, std::ranges::contiguous_range Out>
  void backward(const In& adjoint, Out&& initial_adjoint) {
    backward(std::span<const std::byte>(std::as_bytes(std::span(adjoint))),
             std::span<std::byte>(std::as_writable_bytes(std::span(initial_adjoint))));
  }

  // Between a backward and the next forward: measures the step, copies and tiers again, but for what
  // was given, and plans with that. Tiers that failed stay given up. As when the run was made, the
  // Step runs, so that gradients in it are lost. For costs that proved wrong: see Report.
  void measure_again();

  // From the next forward or backward on: a token that was asked to stop stays so.
  void set_stop(std::stop_token stop);

  const Chain& chain() const;
  const Platform& platform() const;
  const Plan& plan() const;
  // Of the last backward.
  Report report() const;
  // Of the last forward and backward; without trace_events it has no events of theirs.
  std::string trace_json() const;

 private:
  struct State;
  State& state() const;
  std::unique_ptr<State> state_;
};

}  // namespace ebb
