// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/device_gruslys_command.h"

#include <cstdint>
#include <ostream>

#include "ebb/cli/device_option.h"
#include "ebb/cli/watched.h"
#include "ebb/core/words.h"
#include "ebb/experiments/bench_net.h"
#include "ebb/experiments/device_gruslys_bench.h"
#include "ebb/experiments/device_gruslys_text.h"
#include "ebb/experiments/device_trials_text.h"

namespace ebb {
namespace {

// Left out.
struct DeviceGruslysDefaults {
  const char* hidden;
  const char* batch;
  const char* steps;
  const char* memory;
  const char* lengths;
  const char* budgets;
  const char* repeat;
};
constexpr DeviceGruslysDefaults kDeviceGruslysUsual = {
    "512", "64", "4096", "5,10,20,50,100", "1024,4096,16384", "5,20", "5"};
constexpr DeviceGruslysDefaults kDeviceGruslysQuick = {"256",      "32", "1024", "5,20,100",
                                                       "512,1024", "10", "2"};
constexpr const char* kDeviceGruslysInput = "64";

DeviceGruslysSetup read_device_gruslys(const GruslysWords& words) {
  refuse_options_of("cpu", {{"--threads", words.threads.has_value()}});
  const DeviceGruslysDefaults& usual = words.quick ? kDeviceGruslysQuick : kDeviceGruslysUsual;
  const auto count = [](const char* option, const std::optional<std::string>& word,
                        const char* otherwise, std::int64_t least, std::int64_t most) {
    return read_count(option, word.value_or(otherwise), least, most);
  };
  const auto counts = [](const char* option, const std::optional<std::string>& word,
                         const char* otherwise, std::int64_t most) {
    return read_counts(option, word.value_or(otherwise), 1, most);
  };
  DeviceGruslysSetup setup;
  setup.number = words.number.value_or("bf16");
  setup.input = count("--input", words.input, kDeviceGruslysInput, 1, kMostUnits);
  setup.hidden = count("--hidden", words.hidden, usual.hidden, 1, kMostUnits);
  setup.batch = count("--batch", words.batch, usual.batch, 1, kMostBatch);
  setup.steps = count("--steps", words.steps, usual.steps, 2, kMostSteps);
  setup.chunk = count("--chunk", words.chunk, "0", 0, kMostSteps);
  setup.memory = counts("--memory", words.memory, usual.memory, 100);
  setup.lengths = counts("--lengths", words.lengths, usual.lengths, kMostSteps);
  setup.budgets = counts("--budgets", words.budgets, usual.budgets, 100);
  setup.repeat = static_cast<int>(count("--repeat", words.repeat, usual.repeat, 1, 1000));
  return setup;
}

}  // namespace

void answer_device_gruslys(const GruslysWords& words, int device, std::ostream& out,
                           std::ostream& err) {
  DeviceGruslysSetup setup = read_device_gruslys(words);
  use_cuda_device(device);
  const DeviceGruslysResults results = watched(setup, err, run_device_gruslys_bench);
  write_bench(words.output,
              {.json = [&] { return device_gruslys_json(setup, results); },
               .csv = [&](std::ostream& to) { write_device_csv(results.trials, to); },
               .text = [&](std::ostream& to) { write_device_gruslys(setup, results, to); }},
              out);
}

std::string device_gruslys_defaults() {
  return std::string("--input ") + kDeviceGruslysInput + " --hidden " + kDeviceGruslysUsual.hidden +
         " --batch " + kDeviceGruslysUsual.batch + " --steps " + kDeviceGruslysUsual.steps +
         "\n  --memory " + kDeviceGruslysUsual.memory + " --lengths " +
         kDeviceGruslysUsual.lengths + " --budgets " + kDeviceGruslysUsual.budgets + " --repeat " +
         kDeviceGruslysUsual.repeat;
}

}  // namespace ebb
