// SPDX-License-Identifier: Apache-2.0
#include "ebb/run/run.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <sstream>
#include <utility>

#include "ebb/codec/codec.h"
#include "ebb/core/error.h"
#include "ebb/plan/replay.h"
#include "ebb/run/coded_step.h"
#include "ebb/run/compare_runs.h"
#include "ebb/run/executor.h"
#include "ebb/run/plan_cache.h"
#include "ebb/run/sizes.h"
#include "ebb/run/trace.h"

namespace ebb {
namespace {

// Below this share of a run's time a tier's speed makes no difference.
constexpr double kTierMatters = 0.02;
constexpr std::int64_t kComparedSteps = 64;
constexpr std::size_t kMostTraceEvents = 100'000'000;
constexpr Bytes kMostItems = 1 << 20;

void check(const Step& step, const RunOptions& options) {
  if (step.steps() < 0 && step.steps() != Step::kUnknown) {
    fail(ErrorCode::invalid_argument, "run: the step says ", step.steps(),
         " steps; there must be 0 or more, or Step::kUnknown");
  }
  if (options.budget < 0) {
    fail(ErrorCode::invalid_argument, "run: the budget is ", options.budget,
         " bytes; it must be 0 or more");
  }
  if (!options.state_codec.empty() && !options.transfer_codec.empty()) {
    fail(ErrorCode::invalid_argument, "run: state codec '", options.state_codec,
         "' and transfer codec '", options.transfer_codec, "' exclude each other; name one");
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
}

// Words, not bytes: what is 0 in all its bits costs nothing.
std::shared_ptr<const Codec> transfer_codec(const std::string& words) {
  if (words.empty()) return nullptr;
  const CodecRow& row = codec_row(std::string_view(words).substr(0, words.find(':')));
  if (!row.exact || row.fixed) {
    fail(ErrorCode::invalid_argument, "run: transfer codec '", words,
         "': it takes lossless ones whose size depends on the content: events, zstd, lz4");
  }
  return make_codec(words, row.name == "events" ? Element::f32 : Element::byte);
}

}  // namespace

struct Run::State {
  State(Step& given, RunOptions run_options)
      : options(std::move(run_options)),
        ledger(options.ledger.value_or(Ledger(std::max<Bytes>(0, options.budget)))),
        raw(given),
        step(&given) {
    check(given, options);
    trace = Trace(options.trace_events);
    transfers = transfer_codec(options.transfer_codec);
    if (!options.tape_codec.empty()) {
      coded = std::make_unique<CodedStep>(given, options.tape_codec);
      step = coded.get();
    }
    if (!options.state_codec.empty()) {
      if (!given.is_uniform() || given.steps() == 0) {
        fail(ErrorCode::invalid_argument, "run: state codec '", options.state_codec,
             "': it takes a Step of 1 step or more, all alike");
      }
      state_codec = std::make_unique<FieldCodec>(options.state_codec, given.state_fields(),
                                                 given.bytes(0).state);
      if (state_codec->encoded_bytes() >= given.bytes(0).state) {
        fail(ErrorCode::invalid_argument, "run: state codec '", options.state_codec,
             "' makes no state smaller: ", given.bytes(0).state, " bytes become ",
             state_codec->encoded_bytes());
      }
    }
    measure();
    // What it pointed to is the caller's again.
    options.profile.initial = {};
    make();
  }

  bool unknown() const { return step->steps() == Step::kUnknown; }

  // The chain with the step's bytes and given or measured seconds; the platform with the tiers'
  // given or measured speeds.
  void measure() {
    const std::int64_t steps = unknown() ? options.profile.expected_steps : step->steps();
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
    how.room = options.budget;
    chain = chain_of(*step, has_tiers, steps, options.chain ? &*options.chain : nullptr);
    // Where even the working set does not fit nothing is measured: planning says what would.
    const bool hopeless = steps == 0 || largest_working() > options.budget;
    if (!options.chain && !hopeless) {
      chain = profile(*step, options.budget, {}, how).chain;
      chain = chain_of(*step, has_tiers, steps, &chain);
    }
    if (state_codec) keep_states_encoded(has_tiers);
    platform = options.platform.value_or(Platform{});
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

  void keep_states_encoded(bool has_tiers) {
    StepCost cost = chain.at(0);
    cost.live = cost.state;
    cost.state = rounded(state_codec->encoded_bytes(), item_grain(cost.tape, has_tiers));
    chain = Chain::uniform(chain.steps(), cost, chain.call());
  }

  Bytes final_room() const { return rounded(step->final_bytes(), kAlignment); }

  // What the working set takes at most, for steps that differ: memory cannot grow and shrink with
  // each of them.
  Bytes largest_working() const {
    if (chain.steps() == 0) return 0;
    const StepCost most = chain.typical();
    const Bytes live = std::max(most.live_bytes(), final_room());
    return add_bytes(add_bytes(live, most.adjoint), add_bytes(most.scratch, most.tape));
  }

  void make() {
    executor.reset();
    if (unknown()) check_unknown();
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
    if (!step->is_uniform() && !options.slots) how.working = largest_working();
    if (options.plan) {
      plan = replayed(*options.plan);
    } else {
      plan = cached_plan(chain, platform, how);
    }

    ExecutorSetup setup;
    HoldingsSetup& holdings = setup.holdings;
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
    if (!step->is_uniform()) holdings.state = std::max(holdings.state, final_room());
    holdings.adjoint = most.adjoint;
    holdings.tiers = options.tiers;
    for (std::size_t k = 0; k < options.tiers.size(); ++k) {
      TierNeeds needs;
      needs.peak = unknown() ? options.tiers[k].capacity : peak[k + 1];
      needs.largest = std::max({most.state, most.tape, most.live});
      needs.items = static_cast<std::size_t>(
          std::min(kMostItems, needs.peak / std::min(most.state, most.tape) + 1));
      set_transforms(needs);
      holdings.needs.push_back(std::move(needs));
    }
    holdings.ledger = ledger;
    holdings.host = options.host_ledger.value_or(Ledger());
    holdings.trace = options.trace_events > 0 ? &trace : nullptr;
    setup.state_codec = state_codec.get();
    setup.transforms_all = transfers != nullptr;
    setup.stop = options.stop;
    setup.progress = options.progress;
    setup.progress_seconds = options.progress_seconds;
    booked = holdings.fast;
    executor = std::make_unique<Executor>(*step, chain, *plan, setup);
  }

  std::shared_ptr<const Plan> replayed(const Plan& given) const {
    Plan copy = given;
    copy.machine.platform.tiers = platform.tiers;
    copy.machine.platform.fast = std::min(copy.machine.platform.fast, options.budget);
    if (!step->is_uniform() && !copy.machine.working) copy.machine.working = largest_working();
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

  void set_transforms(TierNeeds& needs) const {
    if (transfers) {
      needs.encode = [codec = transfers](std::span<const std::byte> from, std::span<std::byte> to) {
        return codec->encode(from, to);
      };
      needs.decode = [codec = transfers](std::span<const std::byte> from, std::span<std::byte> to) {
        codec->decode(from, to);
        return static_cast<Bytes>(to.size());
      };
    } else if (state_codec) {
      needs.encode = [this](std::span<const std::byte> from, std::span<std::byte> to) {
        const Bytes bytes = state_codec->encoded_bytes();
        state_codec->encode(from, to.first(static_cast<std::size_t>(bytes)));
        return bytes;
      };
      needs.decode = [this](std::span<const std::byte> from, std::span<std::byte> to) {
        const auto bytes = static_cast<std::size_t>(state_codec->encoded_bytes());
        state_codec->decode(from.first(bytes), to);
        return static_cast<Bytes>(to.size());
      };
    }
  }

  bool is_lossy() const {
    return (coded && !coded->exact()) || (state_codec && !state_codec->exact());
  }

  // Once, on the first steps and from the state the run starts with: against a plan without codecs
  // in the same budget, which gives exact gradients. Only one of their memories is held at a time.
  void measure_codec_error(std::span<const std::byte> initial) {
    if (!options.measure_codec_error || !is_lossy() || codec_error) return;
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

  // Plans anew when transfers were far from what the plan assumes.
  void compare_speeds() {
    remarks.clear();
    const Measured& measured = executor->measured();
    for (std::size_t k = 0; k < platform.tiers.size(); ++k) {
      Tier& tier = platform.tiers[k];
      const TierTraffic& traffic = measured.tiers[k];
      compare(tier.name + " writes", traffic.written, tier.write_rate, tier.write_latency);
      compare(tier.name + " reads", traffic.read, tier.read_rate, tier.read_latency);
    }
    if (measured.failed_transfers > 0) {
      std::ostringstream text;
      text << measured.failed_transfers << " transfers failed and were made good by "
           << measured.extra_forwards << " extra forwards; first: " << measured.failures.front();
      remarks.push_back(text.str());
    }
  }

  void compare(const std::string& what, const TierTraffic::Direction& traffic, double& rate,
               double& latency) {
    const double factor = options.replan_factor;
    const auto items = static_cast<double>(traffic.states + traffic.tapes);
    const double assumed = latency * items + static_cast<double>(traffic.bytes) / rate;
    const double seconds = executor->measured().seconds;
    if (factor == 0 || items < 4 ||
        std::max(assumed, traffic.busy_seconds) < kTierMatters * seconds) {
      return;
    }
    const double ratio = traffic.busy_seconds / std::max(assumed, 1e-12);
    if (ratio <= factor && ratio * factor >= 1) return;
    std::ostringstream text;
    text.precision(3);
    text << what << " took " << traffic.busy_seconds << " s where the plan assumed " << assumed
         << " s";
    if (!options.plan) {
      text << "; the next forward plans with what was measured";
      rate /= ratio;
      latency *= ratio;
      if (!std::isfinite(rate)) rate = static_cast<double>(traffic.bytes) / traffic.busy_seconds;
      replans = true;
    }
    remarks.push_back(text.str());
  }

  RunOptions options;
  Ledger ledger;
  Trace trace{0};
  Step& raw;
  Step* step;
  std::unique_ptr<CodedStep> coded;
  std::unique_ptr<FieldCodec> state_codec;
  std::shared_ptr<const Codec> transfers;
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
  s.callers = static_cast<Bytes>(initial.size() + final.size()) + s.step->callers_bytes();
  s.executor->forward(initial, final);
}

void Run::backward(std::span<const std::byte> adjoint, std::span<std::byte> initial_adjoint) {
  State& s = state();
  if (!s.executor) fail(ErrorCode::invalid_argument, "run: backward needs a forward before it");
  s.executor->backward(adjoint, initial_adjoint);
  s.callers += static_cast<Bytes>(adjoint.size() + initial_adjoint.size());
  s.compare_speeds();
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
