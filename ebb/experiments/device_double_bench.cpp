// SPDX-License-Identifier: Apache-2.0
#include "ebb/experiments/device_double_bench.h"

#include <algorithm>
#include <map>
#include <utility>

#include "ebb/core/error.h"
#include "ebb/device/device_memory.h"
#include "ebb/experiments/bench_net.h"
#include "ebb/experiments/double_bench.h"

namespace ebb {
namespace {

constexpr std::int64_t kUnit = 32;   // kernels take multiples of it
constexpr std::int64_t kParts = 50;  // searches end at one part in this many

DeviceNet net_of(const DeviceDoubleSetup& setup) {
  DeviceNet net;
  net.layer = {.cell = setup.cell,
               .input = setup.input,
               .recurrent_density = setup.density,
               .weight_scale = setup.weight_scale,
               .hard_reset = true,
               .gradient_threshold = kSecondThreshold};
  net.batch = setup.batch;
  net.number = setup.number;
  net.rate = setup.rate;
  return net;
}

struct Most {
  std::int64_t count = 0;
  bool is_all = false;  // that was tried
};

// The most for which `fits` holds, to one part in `parts` of it or to `unit`; `least` is known to fit. Doubling first: plans far beyond
// the answer take long to make.
template <class Fits>
Most most_of(std::int64_t least, std::int64_t all, std::int64_t unit, std::int64_t parts,
             const Fits& fits) {
  std::int64_t low = least, high = low;
  while (true) {
    if (low >= all) return {low, true};
    high = std::min(2 * low, all);
    if (!fits(high)) break;
    low = high;
  }
  while (high - low > std::max(unit, low / parts)) {
    const std::int64_t middle = low + std::max((high - low) / 2 / unit, std::int64_t{1}) * unit;
    (fits(middle) ? low : high) = middle;
  }
  return {low, false};
}

class DeviceDoubleBench {
 public:
  explicit DeviceDoubleBench(const DeviceDoubleSetup& setup)
      : setup_(setup), trials_(net_of(setup), setup.repeat, setup.stop) {}

  DeviceDoubleResults run() {
    const std::string missing = cuda_missing();
    if (!missing.empty()) fail(ErrorCode::unavailable, "bench double: ", missing);
    results_.device = cuda_device_name();
    measure_plain();
    measure_longest();
    measure_lengths();
    measure_largest();
    return std::move(results_);
  }

 private:
  void tell(const std::string& what) {
    check_stop(setup_.stop);
    const std::size_t strategies = double_strategies().size();
    const auto all = static_cast<double>(1 + 4 * strategies + 2 * setup_.longer.size());
    if (setup_.progress) setup_.progress(what, std::min(told_++ / all, 1.0));
  }

  DeviceTrial asked(const std::string& strategy, std::int64_t time_steps,
                    std::int64_t hidden) const {
    DeviceTrial trial;
    trial.time_steps = time_steps;
    trial.hidden = hidden;
    trial.chunk = setup_.chunk;
    trial.host_budget = setup_.host_budget;
    trial.trial.strategy = strategy;
    trial.trial.budget = setup_.budget;
    return trial;
  }
  bool fits(const std::string& strategy, std::int64_t time_steps, std::int64_t hidden) const {
    return trials_.planned(asked(strategy, time_steps, hidden)).has_value();
  }

  std::int64_t plain_steps() const { return results_.plain.time_steps; }

  void measure_plain() {
    tell("plain in the budget");
    const auto in_budget = [&](std::int64_t time_steps) {
      return fits("store_all", time_steps, setup_.hidden);
    };
    if (!in_budget(1)) {
      fail(ErrorCode::infeasible_budget, "plain backpropagation has no room for one time step in ",
           format_bytes(setup_.budget), "; give a larger budget or a smaller hidden layer");
    }
    const std::int64_t most =
        most_of(1, setup_.steps.value_or(kMostSteps), 1, kUnlimited, in_budget).count;
    DeviceTrial& plain = results_.plain = asked("store_all", most, setup_.hidden);
    trials_.run(plain);
    if (!plain.trial.fits) {
      throw Error(ErrorCode::out_of_memory,
                  "the device has no room for plain backpropagation in " +
                      format_bytes(setup_.budget) + " beside the weights",
                  {}, "give a smaller budget or a smaller net");
    }
    set_ratios(plain, plain);
  }

  // Against plain in memory without a limit.
  void measure(const char* series, DeviceTrial trial) {
    trial.series = series;
    trials_.run(trial);
    set_ratios(trial, trials_.plain(trial.time_steps, trial.hidden));
    results_.trials.push_back(std::move(trial));
  }

  void measure_longest() {
    for (const std::string& strategy : double_strategies()) {
      tell("longest sequence, " + strategy);
      DeviceTrial trial = asked(strategy, plain_steps(), setup_.hidden);
      if (strategy == "store_all") {
        trial.most = plain_steps();
      } else {
        const auto in_budget = [&](std::int64_t time_steps) {
          return fits(strategy, time_steps, setup_.hidden);
        };
        if (!in_budget(1)) continue;
        const std::int64_t least = in_budget(plain_steps()) ? plain_steps() : 1;
        const Most most =
            most_of(least, setup_.most_searched * plain_steps(), 1, kParts, in_budget);
        trial.most = most.count;
        trial.more_may_fit = most.is_all;
        trial.time_steps = std::min(most.count, setup_.long_factor * plain_steps());
      }
      tell(std::to_string(trial.time_steps) + " time steps, " + strategy);
      measure("longest", std::move(trial));
    }
  }

  void measure_lengths() {
    for (const std::int64_t factor : setup_.longer) {
      for (const char* strategy : {"double", "auto"}) {
        tell(std::to_string(factor) + " times as long, " + strategy);
        measure("length", asked(strategy, factor * plain_steps(), setup_.hidden));
      }
    }
  }

  bool runs(const std::string& strategy, std::int64_t hidden) {
    const auto known = runs_.find(hidden);
    if (known != runs_.end()) return known->second;
    const bool found = trials_.runs(asked(strategy, plain_steps(), hidden));
    return runs_.emplace(hidden, found).first->second;
  }

  // As wide as the goal names, the budget allows and the device takes.
  std::int64_t widest_that_runs(const std::string& strategy, std::int64_t most) {
    const std::int64_t wanted = std::min(most, setup_.large_factor * setup_.hidden);
    if (runs(strategy, wanted)) return wanted;
    return most_of(setup_.hidden, wanted, kUnit, kParts,
                   [&](std::int64_t hidden) { return runs(strategy, hidden); })
        .count;
  }

  void measure_largest() {
    for (const std::string& strategy : double_strategies()) {
      tell("widest net, " + strategy);
      const auto in_budget = [&](std::int64_t hidden) {
        return fits(strategy, plain_steps(), hidden);
      };
      if (!in_budget(setup_.hidden)) continue;
      // Wider ones than the goal names take long to make and no more is learned from them.
      const Most most =
          most_of(setup_.hidden, 2 * setup_.large_factor * setup_.hidden, kUnit, kParts, in_budget);
      DeviceTrial trial = asked(strategy, plain_steps(), setup_.hidden);
      trial.most = most.count;
      trial.more_may_fit = most.is_all;
      if (strategy != "store_all") trial.hidden = widest_that_runs(strategy, most.count);
      tell(std::to_string(trial.hidden) + " units, " + strategy);
      measure("largest", std::move(trial));
    }
  }

  const DeviceDoubleSetup& setup_;
  DeviceTrials trials_;
  DeviceDoubleResults results_;
  std::map<std::int64_t, bool> runs_;  // by units
  double told_ = 0;
};

}  // namespace

DeviceDoubleResults run_device_double_bench(const DeviceDoubleSetup& setup) {
  return DeviceDoubleBench(setup).run();
}

}  // namespace ebb
