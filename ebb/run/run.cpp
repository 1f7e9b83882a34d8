// SPDX-License-Identifier: Apache-2.0
#include "ebb/run/run.h"

#include <algorithm>
#include <new>
#include <sstream>
#include <utility>

#include "ebb/core/error.h"
#include "ebb/plan/replay.h"
#include "ebb/run/codecs.h"
#include "ebb/run/compare_runs.h"
#include "ebb/run/executor.h"
#include "ebb/run/plan_cache.h"
#include "ebb/run/sizes.h"
#include "ebb/run/speeds.h"
#include "ebb/run/trace.h"

namespace ebb {
namespace {

constexpr std::int64_t kComparedSteps = 64;
constexpr std::size_t kMostTraceEvents = 100'000'000;
constexpr Bytes kMostItems = 1 << 20;

RunOptions checked(const Step& step, RunOptions options) {
  if (step.steps() < 0 && step.steps() != Step::kUnknown) {
    fail(ErrorCode::invalid_argument, "run: the step says ", step.steps(),
         " steps; there must be 0 or more, or Step::kUnknown");
  }
  if (options.budget < 0) {
    fail(ErrorCode::invalid_argument, "run: the budget is ", options.budget,
         " bytes; it must be 0 or more");
  }
  if (options.plan && !options.chain) {
    fail(ErrorCode::invalid_argument, "run: a plan needs the chain that it was made for");
  }
  if (!(options.progress_seconds >= 0)) {
    fail(ErrorCode::invalid_argument, "run: progress every ", options.progress_seconds,
         " seconds; it must be 0 or more");
  }
  if (options.replan_factor != 0 && !(options.replan_factor > 1)) {
    fail(ErrorCode::invalid_argument, "run: the factor to plan anew is ", options.replan_factor,
         "; it must be more than 1, or 0 for never");
  }
  if (step.steps() == Step::kUnknown && options.profile.expected_steps < 1) {
    fail(ErrorCode::invalid_argument, "run: ", options.profile.expected_steps,
         " steps are expected of a sequence of unknown length; say 1 or more");
  }
  if (options.trace_events > kMostTraceEvents) {
    fail(ErrorCode::invalid_argument, "run: a trace of ", options.trace_events,
         " events; there may be up to ", kMostTraceEvents);
  }
  for (const SlowTier& tier : options.tiers) {
    if (tier.capacity < 0) {
      fail(ErrorCode::invalid_argument, "run: tier '", tier.name, "' has a capacity of ",
           tier.capacity, " bytes; it must be 0 or more");
    }
    if (!tier.open) fail(ErrorCode::invalid_argument, "run: tier '", tier.name, "' has no medium");
  }
  return options;
}

}  // namespace

struct Run::State {
  State(Step& given, RunOptions run_options)
      : options(checked(given, std::move(run_options))),
        ledger(options.ledger.value_or(Ledger(options.budget))),
        raw(given),
        codecs(given, {options.tape_codec, options.state_codec, options.transfer_codec}),
        step(codecs.step()) {
    trace = Trace(options.trace_events);
    measure();
    // What it pointed to is the caller's again.
    options.profile.initial = {};
    make();
  }

  bool unknown() const { return step.steps() == Step::kUnknown; }

  // The chain with the step's bytes and given or measured seconds; the platform with the tiers'
  // given or measured speeds.
  void measure() {
    const std::int64_t steps = unknown() ? options.profile.expected_steps : step.steps();
    const bool has_tiers = !options.tiers.empty();
    if (options.chain && steps > 0 && !unknown() && options.chain->steps() != steps) {
      fail(ErrorCode::invalid_argument, "run: the chain has ", options.chain->steps(),
           " steps, the step says ", steps);
    }
    if (options.platform && options.platform->tiers.size() != options.tiers.size()) {
      fail(ErrorCode::invalid_argument, "run: the platform has ", options.platform->tiers.size(),
           " tiers, the run ", options.tiers.size());
    }
    ProfileOptions how = options.profile;
    how.ledger = ledger;
    how.host_ledger = options.host_ledger;
    chain = chain_of(step, has_tiers, steps, options.chain ? &*options.chain : nullptr);
    // No plan uses more than this, so nothing needs to be measured in more.
    const Bytes tapes = unknown() || steps == 0 ? kUnlimited : chain.tape_bytes(0, steps);
    how.room = std::min(options.budget, add_bytes(tapes, scale_bytes(largest_working(), 2)));
    // Where even the working set does not fit nothing is measured: planning says what would.
    const bool hopeless = steps == 0 || largest_working() > options.budget;
    platform = options.platform.value_or(Platform{});
    if (!options.chain && !hopeless) {
      chain = profile_step(step, has_tiers, how);
    }
    chain = codecs.kept(chain, has_tiers);
    if (!options.platform && !hopeless) {
      platform.copy_rate = profile_copies(chain.typical().state, how);
    }
    platform.fast = options.budget;
    for (std::size_t k = 0; k < options.tiers.size(); ++k) {
      if (!options.platform) {
        platform.tiers.push_back(
            hopeless ? Tier{} : profile_tier(options.tiers[k], chain.typical().state, how));
      }
      platform.tiers[k].name = options.tiers[k].name;
      platform.tiers[k].capacity = options.tiers[k].capacity;
    }
    check_platform(platform);
  }

  Bytes final_room() const { return rounded(step.final_bytes(), kAlignment); }

  // What the working set takes at most, for steps that differ: memory cannot grow and shrink with
  // each of them.
  Bytes largest_working() const {
    if (chain.steps() == 0) return 0;
    const StepCost most = chain.typical();
    const Bytes live = std::max(most.live_bytes(), final_room());
    return add_bytes(add_bytes(live, most.adjoint), add_bytes(most.scratch, most.tape));
  }

  // Plans and takes the memory.
  void make() {
    executor.reset();
    if (unknown()) check_unknown();
    plan = options.plan ? replayed(*options.plan) : cached_plan(chain, platform, how_to_plan());
    ExecutorSetup setup;
    setup.holdings = needed();
    setup.state_codec = codecs.state();
    setup.transforms_all = codecs.for_transfers();
    setup.walk = {.in_pieces = true,
                  .stop = options.stop,
                  .progress = options.progress,
                  .progress_seconds = options.progress_seconds};
    booked = setup.holdings.fast;
    executor = std::make_unique<Executor>(step, chain, *plan, setup);
  }

  PlanOptions how_to_plan() const {
    PlanOptions how;
    how.strategy = options.strategy;
    how.slots = options.slots;
    how.intervals = options.intervals;
    how.period = options.period;
    how.sync = options.sync;
    how.length_unknown = unknown();
    if (unknown() && options.strategy == "auto") {
      how.strategy = options.tiers.empty() ? "online" : "async";
    }
    if (!step.is_uniform() && !options.slots) how.working = largest_working();
    return how;
  }

  // The memory that the plan needs.
  HoldingsSetup needed() {
    HoldingsSetup holdings;
    const std::vector<Bytes>& peak = plan->prediction.peak;
    const StepCost most = chain.steps() > 0 ? chain.typical() : StepCost{};
    holdings.fast = unknown() ? options.budget : peak[0];
    if (plan->machine.working) {
      holdings.fast = add_bytes(peak[0] - *plan->machine.working, largest_working());
    }
    if (holdings.fast > options.budget) {
      throw Error(ErrorCode::infeasible_budget,
                  "run: the plan takes " + format_bytes(holdings.fast) +
                      " with its working set, the budget is " + format_bytes(options.budget),
                  holdings.fast);
    }
    holdings.state = most.live_bytes();
    if (!step.is_uniform()) holdings.state = std::max(holdings.state, final_room());
    holdings.adjoint = most.adjoint;
    holdings.tiers = options.tiers;
    for (std::size_t k = 0; k < options.tiers.size(); ++k) {
      TierNeeds needs;
      needs.peak = unknown() ? options.tiers[k].capacity : peak[k + 1];
      needs.largest = std::max({most.state, most.tape, most.live});
      needs.items = static_cast<std::size_t>(
          std::min(kMostItems, needs.peak / std::min(most.state, most.tape) + 1));
      codecs.set_transforms(needs);
      holdings.needs.push_back(std::move(needs));
    }
    holdings.ledger = ledger;
    holdings.host = options.host_ledger.value_or(Ledger());
    holdings.trace = options.trace_events > 0 ? &trace : nullptr;
    return holdings;
  }

  std::shared_ptr<const Plan> replayed(const Plan& given) const {
    Plan copy = given;
    copy.machine.platform.tiers = platform.tiers;
    copy.machine.platform.copy_rate = platform.copy_rate;
    copy.machine.platform.fast = std::min(copy.machine.platform.fast, options.budget);
    if (!step.is_uniform() && !copy.machine.working) copy.machine.working = largest_working();
    const auto cursor = copy.cursor();
    ReplayOptions how;
    how.length_unknown = copy.length_unknown;
    if (copy.length_unknown != unknown()) {
      fail(ErrorCode::invalid_argument, "run: the plan's length is ",
           copy.length_unknown ? "unknown" : "known", ", the step's is not");
    }
    copy.prediction = replay(chain, copy.machine, *cursor, how);
    return std::make_shared<const Plan>(std::move(copy));
  }

  // All that may be needed is taken beforehand.
  void check_unknown() const {
    if (options.budget == kUnlimited) {
      fail(ErrorCode::invalid_argument,
           "run: a sequence of unknown length needs a budget: how many states are kept depends on "
           "nothing else");
    }
    for (const SlowTier& tier : options.tiers) {
      if (tier.capacity != kUnlimited) continue;
      fail(ErrorCode::invalid_argument, "run: tier '", tier.name,
           "' has no capacity; a sequence of unknown length needs one, since it is reserved first");
    }
  }

  // Once, on the first steps and from the state the run starts with: against a plan without codecs
  // in the same budget, which gives exact gradients. Only one of their memories is held at a time.
  void measure_codec_error(std::span<const std::byte> initial) {
    if (!options.measure_codec_error || codecs.exact() || codec_error) return;
    if (unknown()) {
      codec_error = Verification{};
      return;
    }
    executor.reset();
    RunOptions lossy = options;
    lossy.ledger = ledger;
    lossy.chain = chain;
    lossy.platform = platform;
    RunOptions exact;
    exact.budget = options.budget;
    exact.ledger = ledger;
    exact.profile = options.profile;
    exact.profile.initial = initial;
    try {
      const std::int64_t steps = std::min(kComparedSteps, raw.steps());
      codec_error = compare_runs(raw, lossy, exact, initial, steps);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::infeasible_budget) throw;
      codec_error = Verification{};
    }
  }

  // Whatever an earlier call has left, there is an executor afterwards.
  void prepare(std::span<const std::byte> initial) {
    measure_codec_error(initial);
    if (executor && !replans) return;
    make();
    replans = false;
  }

  // After a backward. Plans anew when transfers were far from what the plan assumes.
  void remark() {
    remarks.clear();
    const Measured& measured = executor->measured();
    if (options.replan_factor > 0) {
      SpeedRemarks speeds = compare_speeds(platform, measured, options.replan_factor);
      remarks = std::move(speeds.lines);
      if (!remarks.empty() && !options.plan) {
        for (std::string& line : remarks) line += "; the next forward plans with what was measured";
        platform = std::move(speeds.found);
        replans = true;
      }
    }
    if (measured.failed_transfers > 0) {
      std::ostringstream text;
      text << measured.failed_transfers << " transfers failed and were made good by "
           << measured.extra_forwards << " extra forwards; first: " << measured.failures.front();
      remarks.push_back(text.str());
    }
  }

  RunOptions options;
  Ledger ledger;
  Trace trace{0};
  Step& raw;
  RunCodecs codecs;
  Step& step;  // as the codecs make it
  Chain chain = Chain::uniform(0, {});
  Platform platform;
  std::shared_ptr<const Plan> plan;
  Bytes booked = 0;
  std::unique_ptr<Executor> executor;
  std::optional<Verification> codec_error;
  std::vector<std::string> remarks;
  Bytes callers = 0;
  bool replans = false;
};

Run::Run(Step& step, RunOptions options) {
  try {
    state_ = std::make_unique<State>(step, std::move(options));
  } catch (const std::bad_alloc&) {
    fail(ErrorCode::out_of_memory, "run: the system has no memory for it");
  }
}
Run::~Run() = default;
Run::Run(Run&&) noexcept = default;
Run& Run::operator=(Run&&) noexcept = default;

void Run::forward(std::span<const std::byte> initial, std::span<std::byte> final) {
  State& s = state();
  s.prepare(initial);
  s.trace.clear();
  s.callers = static_cast<Bytes>(initial.size() + final.size()) + s.step.callers_bytes();
  s.executor->forward(initial, final);
}

void Run::backward(std::span<const std::byte> adjoint, std::span<std::byte> initial_adjoint) {
  State& s = state();
  if (!s.executor) fail(ErrorCode::invalid_argument, "run: backward needs a forward before it");
  s.executor->backward(adjoint, initial_adjoint);
  s.callers += static_cast<Bytes>(adjoint.size() + initial_adjoint.size());
  s.remark();
}

void Run::set_stop(std::stop_token stop) {
  State& s = state();
  s.options.stop = std::move(stop);
  if (s.executor) s.executor->set_stop(s.options.stop);
}

Run::State& Run::state() const {
  if (!state_) fail(ErrorCode::invalid_argument, "run: it was moved from");
  return *state_;
}

const Chain& Run::chain() const { return state().chain; }
const Platform& Run::platform() const { return state().platform; }
const Plan& Run::plan() const { return *state().plan; }

Report Run::report() const {
  const State& s = state();
  Report report;
  report.strategy = s.plan->strategy;
  report.predicted = s.plan->prediction;
  if (s.executor) report.measured = s.executor->measured();
  report.budget = s.options.budget;
  report.booked = s.booked;
  report.callers = s.callers;
  for (const Tier& tier : s.platform.tiers) report.tiers.push_back(tier.name);
  report.codec_error = s.codec_error;
  report.remarks = s.remarks;
  if (s.unknown() && report.measured.steps > 0) {
    const Chain found = Chain::uniform(report.measured.steps, s.chain.at(0), s.chain.call());
    const auto cursor = s.plan->cursor();
    report.predicted = replay(found, s.plan->machine, *cursor, {.length_unknown = true});
  }
  return report;
}

std::string Run::trace_json() const {
  std::vector<std::string> names;
  for (const Tier& tier : state().platform.tiers) names.push_back(tier.name);
  return state().trace.json(names);
}

}  // namespace ebb
