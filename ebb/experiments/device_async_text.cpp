// SPDX-License-Identifier: Apache-2.0
#include "ebb/experiments/device_async_text.h"

#include <ostream>
#include <utility>

#include "ebb/core/layout.h"
#include "ebb/core/units.h"
#include "ebb/experiments/device_trials_text.h"
#include "ebb/experiments/trials_text.h"

namespace ebb {
namespace {

using Row = std::vector<std::string>;

void add_trial(const DeviceTrial& trial, Row& row) {
  if (!trial.trial.fits) {
    row.push_back(unfit_words(trial));
    return;
  }
  row.insert(row.end(),
             {format_seconds(trial.per_step(trial.trial.measured)),
              format_ratio(trial.trial.predicted_ratio), format_ratio(trial.trial.measured_ratio),
              forwards_words(trial), moved_words(trial)});
}
Row async_titles(Row first) {
  first.insert(first.end(), {"time step", "predicted", "measured", "forwards", "moved"});
  return first;
}

void write_by_steps(const DeviceAsyncResults& results, std::ostream& out) {
  std::vector<Row> rows = {async_titles({"steps", "strategy"})};
  std::int64_t last = 0;
  for (const DeviceTrial& trial : results.trials) {
    if (trial.series != "steps") continue;
    const bool same = std::exchange(last, trial.time_steps) == trial.time_steps;
    Row& row =
        rows.emplace_back(Row{same ? "" : std::to_string(trial.time_steps), strategy_words(trial)});
    add_trial(trial, row);
  }
  write_table(rows, out);
}

void write_by_chunk(const DeviceAsyncResults& results, std::ostream& out) {
  std::vector<Row> rows = {async_titles({"chunk"})};
  for (const DeviceTrial& trial : results.trials) {
    if (trial.series != "chunk") continue;
    add_trial(trial, rows.emplace_back(Row{std::to_string(trial.chunk)}));
  }
  write_table(rows, out);
}

}  // namespace

void write_device_async(const DeviceAsyncSetup& setup, const DeviceAsyncResults& results,
                        std::ostream& out) {
  Lines lines(out);
  lines.add("device", results.device);
  lines.add("net", "lstm, " + std::to_string(setup.input) + " inputs, " +
                       std::to_string(setup.hidden) + " units, " + setup.number + ", batch " +
                       std::to_string(setup.batch) + ", " + std::to_string(results.parameters) +
                       " parameters");
  lines.add("budget", format_bytes(setup.budget) + " of the device, " +
                          format_bytes(setup.host_budget) + " of the host's memory");
  write_measured(setup.repeat, out);
  out << "\n(a) Against the number of time steps: a time step, and times that of plain,\n"
      << "    which keeps everything in the device's memory. single_local has no limit\n"
      << "    there either and the chunk of async: most steps run forward twice, and\n"
      << "    nothing is moved. revolve has the device's memory alone.\n\n";
  write_by_steps(results, out);
  out << "\n(b) async against the chunk, over " << setup.steps.back() << " time steps\n\n";
  write_by_chunk(results, out);
  out << '\n';
  write_verdicts(results.trials, out);
}

std::string device_async_json(const DeviceAsyncSetup& setup, const DeviceAsyncResults& results) {
  return device_json({{"experiment", "async"},
                      {"paper", "Kukreja, Hueckelheim, Gorman 2018"},
                      {"device", results.device},
                      {"number", setup.number},
                      {"input", setup.input},
                      {"hidden", setup.hidden},
                      {"batch", setup.batch},
                      {"budget", setup.budget},
                      {"host_budget", setup.host_budget},
                      {"repeat", setup.repeat},
                      {"parameters", results.parameters}},
                     results.trials);
}

}  // namespace ebb
