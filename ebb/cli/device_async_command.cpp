// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/device_async_command.h"

#include <cstdint>
#include <ostream>

#include "ebb/cli/device_option.h"
#include "ebb/cli/watched.h"
#include "ebb/core/words.h"
#include "ebb/experiments/bench_net.h"
#include "ebb/experiments/device_async_bench.h"
#include "ebb/experiments/device_async_text.h"
#include "ebb/experiments/device_trials_text.h"

namespace ebb {
namespace {

// Left out.
struct DeviceAsyncDefaults {
  const char* hidden;
  const char* batch;
  const char* budget;
  const char* steps;
  const char* chunks;
  const char* repeat;
};
constexpr DeviceAsyncDefaults kDeviceAsyncUsual = {"512",        "64", "128MiB", "1024,4096,16384",
                                                   "8,16,32,64", "5"};
constexpr DeviceAsyncDefaults kDeviceAsyncQuick = {"256", "32", "6MiB", "512,1024", "4,8", "2"};
constexpr const char* kDeviceAsyncInput = "64";
constexpr const char* kDeviceAsyncHostBudget = "8GiB";

DeviceAsyncSetup read_device_async(const AsyncWords& words) {
  refuse_options_of("cpu", {{"--tier", !words.tiers.empty()},
                            {"--state", words.state.has_value()},
                            {"--sweeps", words.sweeps.has_value()},
                            {"--interval", words.interval.has_value()},
                            {"--vary-sweeps", words.vary_sweeps.has_value()}});
  const DeviceAsyncDefaults& usual = words.quick ? kDeviceAsyncQuick : kDeviceAsyncUsual;
  const auto count = [](const char* option, const std::optional<std::string>& word,
                        const char* otherwise, std::int64_t most) {
    return read_count(option, word.value_or(otherwise), 1, most);
  };
  const auto counts = [](const char* option, const std::optional<std::string>& word,
                         const char* otherwise) {
    return read_counts(option, word.value_or(otherwise), 1, kMostSteps);
  };
  const auto size = [](const char* option, const std::optional<std::string>& word,
                       const char* otherwise) {
    return read_size(option, word.value_or(otherwise), 1, kUnlimited - 1);
  };
  DeviceAsyncSetup setup;
  setup.number = words.number.value_or("bf16");
  setup.input = count("--input", words.input, kDeviceAsyncInput, kMostUnits);
  setup.hidden = count("--hidden", words.hidden, usual.hidden, kMostUnits);
  setup.batch = count("--batch", words.batch, usual.batch, kMostBatch);
  setup.budget = size("--budget", words.budget, usual.budget);
  setup.host_budget = size("--host-budget", words.host_budget, kDeviceAsyncHostBudget);
  setup.steps = counts("--steps", words.steps, usual.steps);
  setup.chunks = counts("--chunks", words.chunks, usual.chunks);
  setup.repeat = static_cast<int>(count("--repeat", words.repeat, usual.repeat, 1000));
  return setup;
}

}  // namespace

void answer_device_async(const AsyncWords& words, int device, std::ostream& out,
                         std::ostream& err) {
  DeviceAsyncSetup setup = read_device_async(words);
  use_cuda_device(device);
  const DeviceAsyncResults results = watched(setup, err, run_device_async_bench);
  write_bench(words.output,
              {.json = [&] { return device_async_json(setup, results); },
               .csv = [&](std::ostream& to) { write_device_csv(results.trials, to); },
               .text = [&](std::ostream& to) { write_device_async(setup, results, to); }},
              out);
}

std::string device_async_defaults() {
  return std::string("--budget ") + kDeviceAsyncUsual.budget + " --host-budget " +
         kDeviceAsyncHostBudget + " --steps " + kDeviceAsyncUsual.steps + "\n  --chunks " +
         kDeviceAsyncUsual.chunks + " --repeat " + kDeviceAsyncUsual.repeat;
}

}  // namespace ebb
