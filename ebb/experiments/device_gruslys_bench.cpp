// SPDX-License-Identifier: Apache-2.0
#include "ebb/experiments/device_gruslys_bench.h"

#include <utility>

#include "ebb/core/error.h"
#include "ebb/device/device_memory.h"

namespace ebb {
namespace {

DeviceNet net_of(const DeviceGruslysSetup& setup) {
  DeviceNet net;
  net.layer = {.cell = "lstm", .input = setup.input};
  net.batch = setup.batch;
  net.number = setup.number;
  return net;
}

class DeviceGruslysBench {
 public:
  explicit DeviceGruslysBench(const DeviceGruslysSetup& setup)
      : setup_(setup), trials_(net_of(setup), setup.repeat, setup.stop) {}

  DeviceGruslysResults run() {
    const std::string missing = cuda_missing();
    if (!missing.empty()) fail(ErrorCode::unavailable, "bench gruslys: ", missing);
    results_.device = cuda_device_name();
    const DevicePlan plain = trials_.plan_of_plain(setup_.steps, setup_.hidden);
    results_.parameters = plain.parameter_size;
    results_.plain = plain.plan.prediction.peak[0];
    add_plain("memory", setup_.steps);
    for (const std::int64_t percent : setup_.memory) measure("memory", setup_.steps, percent);
    for (const std::int64_t length : setup_.lengths) {
      add_plain("steps", length);
      for (const std::int64_t percent : setup_.budgets) measure("steps", length, percent);
    }
    return std::move(results_);
  }

 private:
  void tell(std::int64_t time_steps, const std::string& what) {
    const std::size_t all =
        1 + setup_.memory.size() + setup_.lengths.size() * (1 + setup_.budgets.size());
    if (!setup_.progress) return;
    setup_.progress(std::to_string(time_steps) + " time steps, " + what,
                    static_cast<double>(results_.trials.size()) / static_cast<double>(all));
  }

  void add_plain(const char* series, std::int64_t time_steps) {
    tell(time_steps, "plain");
    DeviceTrial trial = trials_.plain(time_steps, setup_.hidden);
    trial.series = series;
    results_.trials.push_back(std::move(trial));
  }

  void measure(const char* series, std::int64_t time_steps, std::int64_t percent) {
    tell(time_steps, std::to_string(percent) + " % of memory");
    DeviceTrial trial;
    trial.series = series;
    trial.time_steps = time_steps;
    trial.hidden = setup_.hidden;
    trial.chunk = setup_.chunk;
    trial.percent = percent;
    trial.trial.strategy = "auto";
    trial.trial.budget = results_.plain * percent / 100;
    trials_.run(trial);
    set_ratios(trial, trials_.plain(time_steps, setup_.hidden));
    results_.trials.push_back(std::move(trial));
  }

  const DeviceGruslysSetup& setup_;
  DeviceTrials trials_;
  DeviceGruslysResults results_;
};

}  // namespace

DeviceGruslysResults run_device_gruslys_bench(const DeviceGruslysSetup& setup) {
  return DeviceGruslysBench(setup).run();
}

}  // namespace ebb
