// SPDX-License-Identifier: Apache-2.0
#include "ebb/experiments/device_gruslys_text.h"

#include <cmath>
#include <ostream>
#include <utility>

#include "ebb/core/layout.h"
#include "ebb/core/units.h"
#include "ebb/experiments/device_trials_text.h"
#include "ebb/experiments/gruslys_bench.h"
#include "ebb/experiments/trials_text.h"

namespace ebb {
namespace {

using Row = std::vector<std::string>;

std::string memory_words(const DeviceTrial& trial) {
  if (trial.percent) return std::to_string(*trial.percent) + " %";
  return "no limit";
}

void write_by_memory(const DeviceGruslysResults& results, std::ostream& out) {
  std::vector<Row> rows = {
      {"memory", "strategy", "chunk", "predicted", "measured", "forwards", "peak"}};
  for (const DeviceTrial& trial : results.trials) {
    if (trial.series != "memory") continue;
    Row& row = rows.emplace_back(Row{memory_words(trial), strategy_words(trial)});
    add_costs(trial, row);
    if (trial.trial.fits) row.back() = format_bytes(trial.trial.measured.peak[0]);
  }
  write_table(rows, out);
}

void write_by_steps(const DeviceGruslysResults& results, std::ostream& out) {
  std::vector<Row> rows = {
      {"steps", "memory", "strategy", "chunk", "predicted", "measured", "ratio", "forwards"}};
  std::int64_t last = 0;
  for (const DeviceTrial& trial : results.trials) {
    if (trial.series != "steps") continue;
    const bool same = std::exchange(last, trial.time_steps) == trial.time_steps;
    Row& row = rows.emplace_back(Row{same ? "" : std::to_string(trial.time_steps),
                                     memory_words(trial), strategy_words(trial)});
    if (!trial.trial.fits) {
      row.push_back(unfit_words(trial));
      continue;
    }
    row.insert(row.end(),
               {std::to_string(trial.chunk), format_seconds(trial.per_step(trial.trial.predicted)),
                format_seconds(trial.per_step(trial.trial.measured)),
                format_ratio(trial.trial.measured_ratio), forwards_words(trial)});
  }
  write_table(rows, out);
}

void write_goal(const DeviceGruslysResults& results, std::ostream& out) {
  for (const DeviceTrial& trial : results.trials) {
    if (trial.series != "memory" || trial.percent != kGoalPercent || !trial.trial.fits) continue;
    const double ratio = trial.trial.measured_ratio;
    if (!std::isfinite(ratio)) continue;
    Lines lines(out);
    lines.add("auto", "in 5 % of plain memory: predicted " +
                          format_ratio(trial.trial.predicted_ratio) + ", measured " +
                          format_ratio(ratio) + "; the paper's third more time" +
                          (ratio <= kGoalRatio ? ": met" : ": NOT met"));
  }
}

}  // namespace

void write_device_gruslys(const DeviceGruslysSetup& setup, const DeviceGruslysResults& results,
                          std::ostream& out) {
  Lines lines(out);
  lines.add("device", results.device);
  lines.add("net", "lstm, " + std::to_string(setup.input) + " inputs, " +
                       std::to_string(setup.hidden) + " units, " + setup.number + ", batch " +
                       std::to_string(setup.batch) + ", " + std::to_string(results.parameters) +
                       " parameters");
  lines.add("plain", format_bytes(results.plain) + " keep all of " + std::to_string(setup.steps) +
                         " time steps: 100 % of memory");
  write_measured(setup.repeat, out);
  out << "\n(a) Time against memory, over " << setup.steps
      << " time steps: times that of plain\n\n";
  write_by_memory(results, out);
  out << "\n(b) Seconds of a time step against the length, in parts of the same memory\n\n";
  write_by_steps(results, out);
  out << '\n';
  write_goal(results, out);
  write_verdicts(results.trials, out);
}

std::string device_gruslys_json(const DeviceGruslysSetup& setup,
                                const DeviceGruslysResults& results) {
  return device_json({{"experiment", "gruslys"},
                      {"paper", "Gruslys, Munos, Danihelka, Lanctot, Graves 2016"},
                      {"device", results.device},
                      {"number", setup.number},
                      {"input", setup.input},
                      {"hidden", setup.hidden},
                      {"batch", setup.batch},
                      {"steps", setup.steps},
                      {"repeat", setup.repeat},
                      {"parameters", results.parameters},
                      {"plain", results.plain},
                      {"goal", {{"percent", kGoalPercent}, {"ratio", kGoalRatio}}}},
                     results.trials);
}

}  // namespace ebb
