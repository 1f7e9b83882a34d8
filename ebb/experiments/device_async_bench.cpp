// SPDX-License-Identifier: Apache-2.0
#include "ebb/experiments/device_async_bench.h"

#include <utility>

#include "ebb/core/error.h"
#include "ebb/device/device_memory.h"

namespace ebb {
namespace {

DeviceNet net_of(const DeviceAsyncSetup& setup) {
  DeviceNet net;
  net.layer = {.cell = "lstm", .input = setup.input};
  net.batch = setup.batch;
  net.number = setup.number;
  return net;
}

class DeviceAsyncBench {
 public:
  explicit DeviceAsyncBench(const DeviceAsyncSetup& setup)
      : setup_(setup), trials_(net_of(setup), setup.repeat, setup.stop) {}

  DeviceAsyncResults run() {
    const std::string missing = cuda_missing();
    if (!missing.empty()) fail(ErrorCode::unavailable, "bench async: ", missing);
    results_.device = cuda_device_name();
    results_.parameters = trials_.plan_of_plain(setup_.steps.front(), setup_.hidden).parameter_size;
    for (const std::int64_t steps : setup_.steps) measure_length(steps);
    for (const std::int64_t chunk : setup_.chunks) {
      DeviceTrial trial = asked("async", setup_.steps.back());
      trial.series = "chunk";
      trial.chunk = chunk;
      measure(std::move(trial));
    }
    return std::move(results_);
  }

 private:
  DeviceTrial asked(const std::string& strategy, std::int64_t time_steps) const {
    DeviceTrial trial;
    trial.series = "steps";
    trial.time_steps = time_steps;
    trial.hidden = setup_.hidden;
    trial.chunk = setup_.chunk;
    trial.host_budget = setup_.host_budget;
    trial.trial.strategy = strategy;
    trial.trial.budget = setup_.budget;
    return trial;
  }

  void tell(const DeviceTrial& trial) const {
    if (!setup_.progress) return;
    const std::size_t all = 5 * setup_.steps.size() + setup_.chunks.size();
    setup_.progress(std::to_string(trial.time_steps) + " time steps, " + trial.trial.strategy,
                    static_cast<double>(results_.trials.size()) / static_cast<double>(all));
  }

  void measure(DeviceTrial trial) {
    tell(trial);
    trials_.run(trial);
    set_ratios(trial, trials_.plain(trial.time_steps, setup_.hidden));
    results_.trials.push_back(std::move(trial));
  }

  void measure_length(std::int64_t time_steps) {
    tell(asked("store_all", time_steps));
    DeviceTrial plain = trials_.plain(time_steps, setup_.hidden);
    plain.series = "steps";
    results_.trials.push_back(std::move(plain));

    measure(asked("async", time_steps));
    DeviceTrial twice = asked("single_local", time_steps);
    twice.chunk = results_.trials.back().chunk;
    twice.trial.budget = kUnlimited;
    twice.host_budget = 0;
    measure(std::move(twice));
    DeviceTrial revolve = asked("revolve", time_steps);
    revolve.host_budget = 0;
    measure(std::move(revolve));
    measure(asked("auto", time_steps));
  }

  const DeviceAsyncSetup& setup_;
  DeviceTrials trials_;
  DeviceAsyncResults results_;
};

}  // namespace

DeviceAsyncResults run_device_async_bench(const DeviceAsyncSetup& setup) {
  return DeviceAsyncBench(setup).run();
}

}  // namespace ebb
