// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/device_double_command.h"

#include <cstdint>
#include <ostream>

#include "ebb/cli/device_option.h"
#include "ebb/cli/watched.h"
#include "ebb/core/error.h"
#include "ebb/core/words.h"
#include "ebb/experiments/bench_net.h"
#include "ebb/experiments/device_double_bench.h"
#include "ebb/experiments/device_double_text.h"
#include "ebb/experiments/device_trials_text.h"

namespace ebb {
namespace {

// Left out.
struct DeviceDoubleDefaults {
  const char* hidden;
  const char* batch;
  const char* budget;
  const char* longer;
  const char* repeat;
  std::int64_t most_searched;
};
constexpr DeviceDoubleDefaults kDeviceDoubleUsual = {"1024", "64", "64MiB", "2,10,50", "5", 64};
constexpr DeviceDoubleDefaults kDeviceDoubleQuick = {"256", "32", "8MiB", "10", "2", 16};
constexpr const char* kDeviceDoubleInput = "64";
constexpr const char* kDeviceDoubleHostBudget = "8GiB";
constexpr const char* kDeviceDoubleDensity = "100";
constexpr const char* kDeviceDoubleRate = "5";
constexpr const char* kDeviceDoubleScale = "20";

DeviceDoubleSetup read_device_double(const DoubleWords& words) {
  refuse_options_of("cpu", {{"--tier", !words.tiers.empty()},
                            {"--threads", words.threads.has_value()},
                            {"--rates", words.rates.has_value()}});
  const DeviceDoubleDefaults& usual = words.quick ? kDeviceDoubleQuick : kDeviceDoubleUsual;
  const auto count = [](const char* option, const std::optional<std::string>& word,
                        const char* otherwise, std::int64_t most, std::int64_t least = 1) {
    return read_count(option, word.value_or(otherwise), least, most);
  };
  const auto percent = [&](const char* option, const std::optional<std::string>& word,
                           const char* otherwise) {
    return static_cast<double>(count(option, word, otherwise, 100)) / 100;
  };
  DeviceDoubleSetup setup;
  setup.cell = words.cell.value_or("lif");
  setup.number = words.number.value_or("bf16");
  setup.input = count("--input", words.input, kDeviceDoubleInput, kMostUnits);
  setup.hidden = count("--hidden", words.hidden, usual.hidden, kMostUnits);
  setup.batch = count("--batch", words.batch, usual.batch, kMostBatch);
  setup.chunk = count("--chunk", words.chunk, "0", kMostSteps, 0);
  setup.density = percent("--density", words.density, kDeviceDoubleDensity);
  setup.rate = percent("--rate", words.rate, kDeviceDoubleRate);
  setup.weight_scale = static_cast<double>(
      count("--weight-scale", words.scale, kDeviceDoubleScale, kMostWeightScale));
  setup.budget = read_size("--budget", words.budget.value_or(usual.budget), 1, kUnlimited - 1);
  setup.host_budget = read_size(
      "--host-budget", words.host_budget.value_or(kDeviceDoubleHostBudget), 1, kUnlimited - 1);
  if (words.steps) setup.steps = count("--steps", words.steps, "", kMostSteps);
  setup.longer = read_counts("--longer", words.longer.value_or(usual.longer), 1, kMostLonger);
  setup.repeat = static_cast<int>(count("--repeat", words.repeat, usual.repeat, 1000));
  setup.most_searched = usual.most_searched;
  if (setup.cell != "lif" && setup.cell != "alif" && setup.cell != "adlif") {
    fail(ErrorCode::invalid_argument, "--cell is '", shown(setup.cell),
         "'; it must be lif, alif or adlif");
  }
  return setup;
}

}  // namespace

void answer_device_double(const DoubleWords& words, int device, std::ostream& out,
                          std::ostream& err) {
  DeviceDoubleSetup setup = read_device_double(words);
  use_cuda_device(device);
  const DeviceDoubleResults results = watched(setup, err, run_device_double_bench);
  write_bench(words.output,
              {.json = [&] { return device_double_json(setup, results); },
               .csv = [&](std::ostream& to) { write_device_csv(results.trials, to); },
               .text = [&](std::ostream& to) { write_device_double(setup, results, to); }},
              out);
}

std::string device_double_defaults() {
  return std::string("--hidden ") + kDeviceDoubleUsual.hidden + " --batch " +
         kDeviceDoubleUsual.batch + " --density " + kDeviceDoubleDensity + "\n  --weight-scale " +
         kDeviceDoubleScale + " --chunk 0 (chosen) --budget " + kDeviceDoubleUsual.budget +
         "\n  --host-budget " + kDeviceDoubleHostBudget + " --longer " + kDeviceDoubleUsual.longer +
         " --repeat " + kDeviceDoubleUsual.repeat;
}

}  // namespace ebb
