// SPDX-License-Identifier: Apache-2.0
#include "ebb/run/run.h"

#include <algorithm>
#include <new>
#include <sstream>
#include <utility>

#include "ebb/core/error.h"
#include "ebb/plan/replay.h"
#include "ebb/run/check_options.h"
#include "ebb/run/checked_step.h"
#include "ebb/run/codecs.h"
#include "ebb/run/compare_runs.h"
#include "ebb/run/executor.h"
#include "ebb/run/fewer_tiers.h"
#include "ebb/run/plan_cache.h"
#include "ebb/run/sizes.h"
#include "ebb/run/speeds.h"
#include "ebb/run/trace.h"

namespace ebb {
namespace {

constexpr std::int64_t kComparedSteps = 64;
constexpr Bytes kMostItems = 1 << 20;

}  // namespace

struct Run::State {
  State(Step& given, RunOptions run_options)
      : options(checked(given, std::move(run_options))),
        ledger(options.ledger.value_or(Ledger(options.budget))),
        guarded(options.check_writes ? std::make_unique<CheckedStep>(given) : nullptr),
        raw(guarded ? *guarded : given),
        codecs(raw, {options.tape_codec, options.state_codec, options.transfer_codec}),
        step(codecs.step()) {
    trace = Trace(options.trace_events);
    failed.assign(options.tiers.size(), false);
    measure();
    // What it pointed to is the caller's again.
    options.profile.initial = {};
    make(!options.memory_late);
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
    const Platform before = std::exchange(platform, options.platform.value_or(Platform{}));
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
        platform.tiers.push_back(failed[k] ? before.tiers[k]
                                 : hopeless
                                     ? Tier{}
                                     : profile_tier(options.tiers[k], chain.typical().state, how));
      }
      platform.tiers[k].name = options.tiers[k].name;
      platform.tiers[k].capacity = options.tiers[k].capacity;
    }
    check_platform(platform);
  }

  void measure_again() {
    executor.reset();  // there is memory for one of both
    const Chain chain_before = chain;
    const Platform platform_before = platform;
    try {
      measure();
    } catch (...) {
      // A tier may have failed since; the next forward finds out, and goes on without it.
      chain = chain_before;
      platform = platform_before;
      throw;
    }
    replans = false;
    make(!options.memory_late);
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

  // Plans and, if asked to, takes the memory.
  void make(bool takes_memory) {
    executor.reset();
    plan = made_plan();
    ExecutorSetup setup;
    setup.holdings = needed(*plan);
    if (!options.tiers.empty()) {
      setup.replan = [this](int tier, const std::string& why, std::int64_t left) {
        return without(static_cast<std::size_t>(tier), why, left);
      };
    }
    setup.state_codec = codecs.state();
    setup.transforms_all = codecs.for_transfers();
    setup.walk = {.in_pieces = true,
                  .stop = options.stop,
                  .progress = options.progress,
                  .progress_seconds = options.progress_seconds};
    booked = setup.holdings.fast;
    if (!takes_memory) return;
    executor = std::make_unique<Executor>(step, chain, *plan, setup);
  }

  bool any_failed() const { return std::ranges::count(failed, true) > 0; }

  std::shared_ptr<const Plan> made_plan() {
    if (!any_failed()) {
      return options.plan ? replayed(*options.plan) : cached_plan(chain, platform, how_to_plan());
    }
    try {
      return plan_without(chain, platform, failed, how_to_plan());
    } catch (const Error& error) {
      if (error.code() != ErrorCode::infeasible_budget) throw;
      // What fitted the steps left then does not fit all.
      failed.assign(failed.size(), false);
      given_up.clear();
      return made_plan();
    }
  }

  // A tier failed: a plan without it for the steps left, and none for later runs either. None where
  // nothing else fits.
  std::optional<NextPlan> without(std::size_t tier, const std::string& why, std::int64_t left) {
    failed[tier] = replans = true;
    try {
      PlanOptions how = how_to_plan();
      how.length_unknown = left == Step::kUnknown;
      if (left != Step::kUnknown) how.strategy = "auto";
      // Other runs may have taken the rest meanwhile.
      Platform now = platform;
      now.fast = std::min(options.budget, add_bytes(booked, ledger.limit() - ledger.live()));
      const Chain rest = left == Step::kUnknown ? chain : first_steps(chain, left);
      NextPlan next{plan_without(rest, now, failed, how), {}};
      next.holdings = needed(*next.plan);
      booked = std::max(booked, next.holdings.fast);
      given_up.push_back(options.tiers[tier].name + " failed and is not used any more: " + why);
      return next;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::infeasible_budget) throw;
      failed[tier] = false;
      return {};
    }
  }

  PlanOptions how_to_plan() const {
    PlanOptions how;
    how.slots = options.slots;
    how.sync = options.sync;
    how.length_unknown = unknown();
    // What was asked for may need the tier that failed.
    how.strategy = any_failed() ? "auto" : options.strategy;
    if (!any_failed()) {
      how.intervals = options.intervals;
      how.period = options.period;
    }
    if (unknown() && how.strategy == "auto") {
      how.strategy = std::ranges::count(failed, false) == 0 ? "online" : "async";
    }
    if (!step.is_uniform() && !options.slots) how.working = largest_working();
    return how;
  }

  // The memory that the plan needs.
  HoldingsSetup needed(const Plan& of) {
    HoldingsSetup holdings;
    const std::vector<Bytes>& peak = of.prediction.peak;
    const StepCost most = chain.steps() > 0 ? chain.typical() : StepCost{};
    holdings.fast = of.length_unknown ? of.machine.platform.fast : peak[0];
    if (of.machine.working) {
      holdings.fast = add_bytes(peak[0] - *of.machine.working, largest_working());
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
      needs.peak = of.length_unknown ? options.tiers[k].capacity : peak[k + 1];
      if (failed[k]) {
        // Nothing is asked of it any more.
        holdings.tiers[k] = null_tier(options.tiers[k].name);
        needs.peak = 0;
      }
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
    make(true);
    replans = false;
  }

  Prediction predicted(std::int64_t steps) const {
    if (!unknown() || steps == 0) return plan->prediction;
    const Chain all = Chain::uniform(steps, chain.at(0), chain.call());
    return replay(all, plan->machine, *plan->cursor(), {.length_unknown = true});
  }

  // Where the plan changed on the way, what was run beyond the first one is extra.
  Measured found() const {
    Measured measured = executor->measured();
    if (!executor->changed_plan() || measured.steps == 0) return measured;
    const Prediction first = predicted(measured.steps);
    const std::int64_t beyond = measured.forwards() - first.forwards;
    if (beyond <= 0) return measured;
    measured.extra_forwards += beyond;
    measured.advances = first.advances;
    measured.records = first.records;
    return measured;
  }

  // After a backward. Plans anew when transfers were far from what the plan assumes.
  void remark() {
    remarks.clear();
    for (const SlowTier& tier : options.tiers) {
      if (tier.keeps) continue;
      remarks.push_back("NOT EXACT: tier '" + tier.name +
                        "' keeps nothing, so that gradients are wrong");
    }
    const Measured& measured = executor->measured();
    if (options.replan_factor > 0) {
      SpeedRemarks speeds = compare_speeds(platform, measured, options.replan_factor);
      if (!speeds.lines.empty() && !options.plan) {
        for (std::string& line : speeds.lines) {
          line += "; the next forward plans with what was measured";
        }
        platform = std::move(speeds.found);
        replans = true;
      }
      for (std::string& line : speeds.lines) remarks.push_back(std::move(line));
    }
    remarks.insert(remarks.end(), given_up.begin(), given_up.end());
    if (measured.failed_transfers > 0) {
      std::ostringstream text;
      text << measured.failed_transfers << " transfers failed and were made good by "
           << found().extra_forwards << " extra forwards; first: " << measured.failures.front();
      remarks.push_back(text.str());
    }
  }

  RunOptions options;
  Ledger ledger;
  Trace trace{0};
  std::unique_ptr<CheckedStep> guarded;
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
  std::vector<bool> failed;           // tiers that no plan uses any more
  std::vector<std::string> given_up;  // and why, in words
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

void Run::measure_again() { state().measure_again(); }

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
  if (s.executor) report.measured = s.found();
  report.predicted = s.predicted(report.measured.steps);
  report.budget = s.options.budget;
  report.booked = s.booked;
  report.callers = s.callers;
  for (const Tier& tier : s.platform.tiers) report.tiers.push_back(tier.name);
  report.exact = s.codecs.exact() && std::ranges::all_of(s.options.tiers, &SlowTier::keeps);
  report.codec_error = s.codec_error;
  report.remarks = s.remarks;
  return report;
}

std::string Run::trace_json() const {
  std::vector<std::string> names;
  for (const Tier& tier : state().platform.tiers) names.push_back(tier.name);
  return state().trace.json(names);
}

}  // namespace ebb
