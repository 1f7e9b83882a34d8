// SPDX-License-Identifier: Apache-2.0
#include "ebb/run/profile.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "ebb/core/clock.h"
#include "ebb/core/error.h"
#include "ebb/device/buffer.h"
#include "ebb/run/sizes.h"
#include "ebb/store/store.h"

namespace ebb {
namespace {

constexpr int kLeastRepeats = 5;
// Tapes beyond the caches, as in a real run.
constexpr Bytes kTapesMeasured = Bytes{64} << 20;
// One measurement should be this long at least, or clocks and chance weigh in.
constexpr double kLongEnough = 2e-3;
constexpr std::int64_t kMostSteps = 1 << 20;
constexpr std::int64_t kLarger = 4;
constexpr Bytes kCopiesMeasured = Bytes{32} << 20;
constexpr Bytes kLeastCopied = Bytes{1} << 20;
constexpr std::size_t kWork = 16 << 10;
constexpr Bytes kTierMeasured = Bytes{64} << 20;

double seconds_of(const std::function<void()>& work) {
  const double start = seconds_now();
  work();
  return seconds_now() - start;
}

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

void check_seconds(const ProfileOptions& options) {
  for (const double seconds : {options.step_seconds, options.tier_seconds}) {
    if (std::isfinite(seconds) && seconds >= 0) continue;
    fail(ErrorCode::invalid_argument, "profile: ", options.step_seconds, " and ",
         options.tier_seconds, " seconds to measure; they must be numbers, 0 or more");
  }
}

Bytes free_room(const ProfileOptions& options) {
  const Ledger ledger = options.ledger.value_or(Ledger());
  return std::min(options.room, ledger.limit() - ledger.live());
}

// The state and everything that calls of a Step need.
class StepBench {
 public:
  StepBench(Step& step, const Chain& chain, const ProfileOptions& options)
      : step_(step), options_(options) {
    Bytes state = step.final_bytes(), tape = 0, adjoint = 1, scratch = 1;
    for (std::int64_t i = 0; i < (chain.is_uniform() ? 1 : chain.steps()); ++i) {
      const StepCost& cost = chain.at(i);
      state = std::max(state, cost.state);
      tape = std::max(tape, cost.tape);
      adjoint = std::max(adjoint, cost.adjoint);
      scratch = std::max(scratch, cost.scratch);
    }
    tape_ = tape;
    const Ledger ledger = options.ledger.value_or(Ledger());
    const Bytes free = free_room(options) - state - adjoint - scratch;
    const Bytes allowed = std::max(tape, std::min(kTapesMeasured, free));
    tapes_ = std::clamp<std::int64_t>(allowed / tape, 1, chain.is_uniform() ? chain.steps() : 1);
    state_ = Buffer(ledger, "profile", state);
    adjoint_ = Buffer(ledger, "profile", std::max(adjoint, state));
    scratch_ = Buffer(ledger, "profile", scratch);
    tape_memory_ = Buffer(ledger, "profile", tapes_ * tape);
    reset();
  }

  std::int64_t tapes() const { return tapes_; }

  void reset() {
    std::memset(adjoint_.data(), 0, static_cast<std::size_t>(adjoint_.size()));
    if (options_.initial.empty()) {
      std::memset(state_.data(), 0, static_cast<std::size_t>(state_.size()));
    } else {
      std::memcpy(state_.data(), options_.initial.data(), options_.initial.size());
    }
  }
  void advance(std::int64_t from, std::int64_t to) {
    step_.advance({from, to, false}, state_.data(), scratch_.data());
  }
  void record(std::int64_t from, std::int64_t to) {
    step_.record({from, to, false}, state_.data(), {tape_memory_.data(), tape_}, scratch_.data());
  }
  void reverse(std::int64_t from, std::int64_t to) {
    step_.reverse(from, to, {tape_memory_.data(), tape_}, adjoint_.data(), scratch_.data());
  }
  void keep_state() { std::memcpy(adjoint_.data(), state_.data(), state_size()); }
  void put_back() { std::memcpy(state_.data(), adjoint_.data(), state_size()); }

 private:
  std::size_t state_size() const { return static_cast<std::size_t>(state_.size()); }

  Step& step_;
  const ProfileOptions& options_;
  Bytes tape_ = 0;
  std::int64_t tapes_ = 0;
  Buffer state_, adjoint_, scratch_, tape_memory_;
};

struct StepTimes {
  StepCost step;
  double call = 0;
};

// Steps alike: one call of one step against one call of many separates seconds per call from
// seconds per step.
StepTimes measure_alike(Step& step, const Chain& chain, const ProfileOptions& options) {
  StepBench bench(step, chain, options);
  const double until = seconds_now() + options.step_seconds;
  const auto repeat = [&](double share, const std::function<double()>& once) {
    std::vector<double> times;
    const double end = seconds_now() + share * options.step_seconds;
    while (times.size() < kLeastRepeats || seconds_now() < std::min(end, until))
      times.push_back(once());
    return median(times);
  };
  const auto advance = [&](std::int64_t steps) {
    bench.reset();
    return seconds_of([&] { bench.advance(0, steps); });
  };
  const std::int64_t most = std::min(kMostSteps, chain.steps());
  std::int64_t many = 1;
  advance(1);
  while (many < most && advance(many) < kLongEnough) many = std::min(most, 2 * many);

  StepTimes costs;
  const double one = repeat(0.2, [&] { return advance(1); });
  const double all = many > 1 ? repeat(0.2, [&] { return advance(many); }) : one;
  const double each = many > 1 ? (all - one) / static_cast<double>(many - 1) : one;
  costs.step.forward = std::clamp(each, 0.0, all / static_cast<double>(many));
  costs.call = std::max(0.0, one - costs.step.forward);

  const std::int64_t taped = std::min(bench.tapes(), many);
  const auto per_step = [&](double seconds) {
    return std::max(0.0, seconds - costs.call) / static_cast<double>(taped);
  };
  std::vector<double> records, reverses;
  while (records.size() < kLeastRepeats || seconds_now() < until) {
    bench.reset();
    records.push_back(seconds_of([&] { bench.record(0, taped); }));
    reverses.push_back(seconds_of([&] { bench.reverse(0, taped); }));
  }
  costs.step.record = per_step(median(records));
  costs.step.backward = per_step(median(reverses));
  return costs;
}

// Steps that differ: each by itself. Those that the time does not suffice for get the mean.
std::vector<StepCost> measure_each(Step& step, const Chain& chain, const ProfileOptions& options) {
  StepBench bench(step, chain, options);
  std::vector<StepCost> costs;
  const double until = seconds_now() + options.step_seconds;
  StepCost sum{.forward = 0, .record = 0, .backward = 0};
  for (std::int64_t i = 0; i < chain.steps(); ++i) {
    StepCost cost = chain.at(i);
    if (seconds_now() < until || costs.empty()) {
      bench.keep_state();
      bench.advance(i, i + 1);
      bench.put_back();
      cost.forward = seconds_of([&] { bench.advance(i, i + 1); });
      bench.put_back();
      cost.record = seconds_of([&] { bench.record(i, i + 1); });
      bench.keep_state();
      cost.backward = seconds_of([&] { bench.reverse(i, i + 1); });
    } else {
      const auto count = static_cast<double>(i);
      cost.forward = sum.forward / count;
      cost.record = sum.record / count;
      cost.backward = sum.backward / count;
    }
    sum.forward += cost.forward;
    sum.record += cost.record;
    sum.backward += cost.backward;
    costs.push_back(cost);
  }
  return costs;
}

// Transfers of one tier, one at a time and while the caller computes: as most plans make them.
class TierBench {
 public:
  TierBench(const SlowTier& tier, Bytes large, const ProfileOptions& options)
      : large_(large),
        memory_(options.ledger.value_or(Ledger()), "profile", 2 * large),
        store_({tier},
               {{.peak = 2 * large, .largest = large, .items = 2, .encode = {}, .decode = {}}},
               options.host_ledger.value_or(Ledger()), memory_.at(0, 2 * large)),
        seconds_(options.tier_seconds / 2) {}

  struct TransferTimes {
    double write = 0, read = 0, both = 0;  // seconds, of items of one size
  };
  TransferTimes measure(Bytes bytes) {
    const Store::Slot first = store_.add(0, bytes), second = store_.add(0, bytes);
    const auto put = [&](Store::Slot slot) {
      return store_.put(0, slot, memory_.at(slot == first ? 0 : large_, bytes));
    };
    const auto get = [&](Store::Slot slot) {
      return store_.get(0, slot, memory_.at(slot == first ? 0 : large_, bytes));
    };
    store_.wait(put(second));
    std::vector<double> writes, reads, boths;
    const double until = seconds_now() + seconds_;
    while (writes.size() < kLeastRepeats || seconds_now() < until) {
      const double start = store_.now();
      writes.push_back(end(put(first)) - start);
      const double between = store_.now();
      reads.push_back(end(get(second)) - between);
      const double again = store_.now();
      const Store::Ticket out = put(first);
      const double read = end(get(second));
      boths.push_back(std::max(read, end(out)) - again);
    }
    store_.drop(0, first);
    store_.drop(0, second);
    return {median(writes), median(reads), median(boths)};
  }

 private:
  // When the transfer ends; until then the processor is as busy as in a run.
  double end(Store::Ticket ticket) {
    while (!store_.done(ticket)) std::rotate(work_.begin(), work_.begin() + 1, work_.end());
    return store_.wait(ticket).end;
  }

  Bytes large_;
  Buffer memory_;
  std::array<std::byte, kWork> work_{};
  Store store_;
  double seconds_;
};

// What latency and rate explain the seconds of a small and of a large item.
void split(double little, double much, Bytes small, Bytes large, double& rate, double& latency) {
  if (much <= little || large == small) {
    // More bytes that take no more time: all of it is latency.
    latency = much;
    rate = std::numeric_limits<double>::infinity();
    return;
  }
  rate = static_cast<double>(large - small) / (much - little);
  latency = std::max(0.0, little - static_cast<double>(small) / rate);
}

}  // namespace

// Copied as plans copy: from one place to many and back, beyond the caches where there is room.
double profile_copies(Bytes state, const ProfileOptions& options) {
  check_seconds(options);
  if (state < 1) {
    fail(ErrorCode::invalid_argument, "profile_copies: states of ", state,
         " bytes; they have 1 or more");
  }
  const Bytes room = free_room(options) - state;
  if (room < state) return std::numeric_limits<double>::infinity();
  const Bytes kept = std::max(state, std::min(kCopiesMeasured, room)) / state;
  const Ledger ledger = options.ledger.value_or(Ledger());
  const Buffer live(ledger, "profile", state), slots(ledger, "profile", kept * state);
  const auto bytes = static_cast<std::size_t>(state);
  const auto save_and_load_all = [&] {
    for (Bytes i = 0; i < kept; ++i) std::memcpy(slots.data() + i * state, live.data(), bytes);
    for (Bytes i = kept; i-- > 0;) std::memcpy(live.data(), slots.data() + i * state, bytes);
  };
  const Bytes rounds = kLeastCopied / (kept * state) + 1;
  std::vector<double> times(kLeastRepeats);
  for (double& time : times) {
    time = seconds_of([&] {
      for (Bytes round = 0; round < rounds; ++round) save_and_load_all();
    });
  }
  return 2 * static_cast<double>(rounds * kept) * static_cast<double>(state) / median(times);
}

Tier profile_tier(const SlowTier& tier, Bytes item, const ProfileOptions& options) {
  check_seconds(options);
  if (item < 1) {
    fail(ErrorCode::invalid_argument, "profile_tier: items of ", item,
         " bytes; they have 1 or more");
  }
  // Items as large as the run's, so that they go the same way, and larger ones.
  const Bytes allowed = std::min({tier.capacity, free_room(options), kTierMeasured}) / 2;
  const Bytes small = std::min(item, allowed);
  const Bytes large = std::min(scale_bytes(item, kLarger), allowed);
  Tier found;
  found.name = tier.name;
  found.capacity = tier.capacity;
  // A tier that holds no two items is of no use, and needs no speed.
  if (allowed < item) return found;
  TierBench bench(tier, large, options);
  const TierBench::TransferTimes little = bench.measure(small), much = bench.measure(large);
  split(little.write, much.write, small, large, found.write_rate, found.write_latency);
  split(little.read, much.read, small, large, found.read_rate, found.read_latency);
  // Both directions at once take hardly longer than one of them, or they share a lane.
  found.duplex = much.both < 0.75 * (much.write + much.read);
  return found;
}

Chain profile_step(Step& step, bool has_tiers, const ProfileOptions& options) {
  check_seconds(options);
  const bool unknown = step.steps() == Step::kUnknown;
  const std::int64_t steps = unknown ? options.expected_steps : step.steps();
  if (steps < 0) {
    fail(ErrorCode::invalid_argument, "profile: ", steps, " steps; there must be 0 or more");
  }
  Chain chain = chain_of(step, has_tiers, steps, nullptr);
  if (steps == 0) return chain;
  const auto given = static_cast<Bytes>(options.initial.size());
  if (given != 0 && given != step.bytes(0).state) {
    fail(ErrorCode::invalid_argument, "profile: the initial state has ", given,
         " bytes; the step says ", step.bytes(0).state);
  }
  step.begin();
  if (chain.is_uniform()) {
    const StepTimes costs = measure_alike(step, chain, options);
    const Chain seconds = Chain::uniform(steps, costs.step, costs.call);
    chain = chain_of(step, has_tiers, steps, &seconds);
  } else {
    chain = Chain::of(measure_each(step, chain, options));
  }
  step.begin();
  return chain;
}

Profile profile(Step& step, Bytes budget, const std::vector<SlowTier>& tiers,
                const ProfileOptions& options) {
  Profile found{profile_step(step, !tiers.empty(), options), {}};
  found.platform.fast = budget;
  Bytes item = 1;
  if (found.chain.steps() > 0) {
    item = found.chain.typical().state;
    found.platform.copy_rate = profile_copies(item, options);
  }
  for (const SlowTier& tier : tiers) {
    found.platform.tiers.push_back(profile_tier(tier, item, options));
  }
  check_platform(found.platform);
  return found;
}

}  // namespace ebb
