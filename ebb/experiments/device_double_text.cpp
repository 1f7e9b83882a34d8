// SPDX-License-Identifier: Apache-2.0
#include "ebb/experiments/device_double_text.h"

#include <cmath>
#include <ostream>
#include <utility>

#include "ebb/core/layout.h"
#include "ebb/core/units.h"
#include "ebb/experiments/device_trials_text.h"
#include "ebb/experiments/double_bench.h"
#include "ebb/experiments/trials_text.h"

namespace ebb {
namespace {

using Row = std::vector<std::string>;

double times(std::int64_t most, std::int64_t plain) {
  return static_cast<double>(most) / static_cast<double>(plain);
}
std::string times_words(double factor) { return format_number(std::floor(10 * factor) / 10) + "x"; }
std::string or_more(const DeviceTrial& trial, const std::string& words) {
  return trial.more_may_fit ? words + " or more" : words;
}

// Null: there was none that fits.
const DeviceTrial* found_in(const DeviceDoubleResults& results, const char* series,
                            const char* strategy) {
  for (const DeviceTrial& trial : results.trials) {
    if (trial.series == series && trial.trial.strategy == strategy) return &trial;
  }
  return nullptr;
}

void write_longest(const DeviceDoubleSetup& setup, const DeviceDoubleResults& results,
                   std::ostream& out) {
  std::vector<Row> most = {{"strategy", "time steps", "of plain"}};
  std::vector<Row> costs = {cost_titles({"strategy", "steps", "in budget"})};
  for (const DeviceTrial& trial : results.trials) {
    if (trial.series != "longest") continue;
    const double factor = times(*trial.most, results.plain.time_steps);
    most.push_back({trial.trial.strategy == "store_all" ? "plain" : trial.trial.strategy,
                    std::to_string(*trial.most), or_more(trial, times_words(factor))});
    Row& row =
        costs.emplace_back(Row{strategy_words(trial), std::to_string(trial.time_steps),
                               trial.trial.fits ? format_ratio(results.in_budget(trial)) : ""});
    add_costs(trial, row);
  }
  out << "\n(a) The longest sequence that fits the budget\n\n";
  write_table(most, out);
  out << "\n(b) What " << setup.long_factor
      << " times the time steps of plain cost, or the most if that is less:\n"
      << "    a time step against plain in memory without a limit, over the same steps;\n"
      << "    'in budget': measured, against plain in the budget over those that fit\n\n";
  write_table(costs, out);
}

void write_lengths(const DeviceDoubleResults& results, std::ostream& out) {
  std::vector<Row> rows = {cost_titles({"steps", "of plain", "strategy"})};
  std::int64_t last = 0;
  for (const DeviceTrial& trial : results.trials) {
    if (trial.series != "length") continue;
    const bool same = std::exchange(last, trial.time_steps) == trial.time_steps;
    Row& row = rows.emplace_back(
        Row{same ? "" : std::to_string(trial.time_steps),
            same ? "" : times_words(times(trial.time_steps, results.plain.time_steps)),
            strategy_words(trial)});
    add_costs(trial, row);
  }
  if (rows.size() == 1) return;
  out << "\n(c) Time against the length, as in (b)\n\n";
  write_table(rows, out);
}

void write_largest(const DeviceDoubleSetup& setup, const DeviceDoubleResults& results,
                   std::ostream& out) {
  std::vector<Row> most = {{"strategy", "units", "of plain"}};
  std::vector<Row> costs = {cost_titles({"strategy", "units", "weights"})};
  const DeviceTrial* const plain = found_in(results, "largest", "store_all");
  for (const DeviceTrial& trial : results.trials) {
    if (trial.series != "largest") continue;
    const double factor = times(*trial.most, *plain->most);
    most.push_back({trial.trial.strategy == "store_all" ? "plain" : trial.trial.strategy,
                    std::to_string(*trial.most), or_more(trial, times_words(factor))});
    Row& row = costs.emplace_back(
        Row{strategy_words(trial), std::to_string(trial.hidden), std::to_string(trial.parameters)});
    add_costs(trial, row);
  }
  out << "\n(d) The widest net over " << results.plain.time_steps
      << " time steps that fits the budget, where weights do\n    not count\n\n";
  write_table(most, out);
  out << "\n    and what " << setup.large_factor
      << " times the units cost, or the most that fit and the device takes\n\n";
  write_table(costs, out);
}

struct Goals {
  double longest = 0, largest = 0;  // times plain's
  bool is_long = false, is_large = false;
  const DeviceTrial *far = nullptr, *wide = nullptr;
};

// Of auto. A net that the device does not take does not count.
Goals goals_of(const DeviceDoubleSetup& setup, const DeviceDoubleResults& results) {
  Goals goals;
  goals.far = found_in(results, "longest", "auto");
  goals.wide = found_in(results, "largest", "auto");
  if (goals.far != nullptr) goals.longest = times(*goals.far->most, results.plain.time_steps);
  if (goals.wide != nullptr) {
    const std::int64_t plain = *found_in(results, "largest", "store_all")->most;
    const bool refused =
        goals.wide->hidden < std::min(*goals.wide->most, setup.large_factor * setup.hidden);
    goals.largest = times(refused ? goals.wide->hidden : *goals.wide->most, plain);
  }
  goals.is_long = goals.longest >= static_cast<double>(setup.long_factor);
  goals.is_large = goals.largest >= static_cast<double>(setup.large_factor);
  return goals;
}

std::string verdict(bool met) { return met ? ": met" : ": NOT met"; }

std::string time_words(double ratio) {
  return format_ratio(ratio) + (ratio > kMarginal ? " (over 1.1x)" : "");
}

void write_goals(const DeviceDoubleSetup& setup, const DeviceDoubleResults& results,
                 std::ostream& out) {
  const Goals goals = goals_of(setup, results);
  Lines lines(out);
  lines.add("auto", "longest sequence " + times_words(goals.longest) + " that of plain; goal " +
                        std::to_string(setup.long_factor) + "x" + verdict(goals.is_long));
  lines.add("auto", "widest net " + times_words(goals.largest) + " that of plain; goal " +
                        std::to_string(setup.large_factor) + "x" + verdict(goals.is_large));
  if (goals.far != nullptr && goals.far->trial.fits) {
    const Trial& far = goals.far->trial;
    lines.add("auto", times_words(times(goals.far->time_steps, results.plain.time_steps)) +
                          " as long: predicted " + format_ratio(far.predicted_ratio) +
                          ", measured " + time_words(far.measured_ratio));
    lines.add("auto",
              "    and against plain in the budget " + time_words(results.in_budget(*goals.far)));
  }
  if (goals.wide != nullptr && goals.wide->trial.fits) {
    const Trial& wide = goals.wide->trial;
    lines.add("auto", times_words(times(goals.wide->hidden, setup.hidden)) +
                          " as wide: predicted " + format_ratio(wide.predicted_ratio) +
                          ", measured " + time_words(wide.measured_ratio));
  }
}

}  // namespace

void write_device_double(const DeviceDoubleSetup& setup, const DeviceDoubleResults& results,
                         std::ostream& out) {
  const DeviceTrial& plain = results.plain;
  Lines lines(out);
  lines.add("device", results.device);
  lines.add("net", setup.cell + ", " + std::to_string(setup.input) + " inputs, " +
                       std::to_string(setup.hidden) + " units, " + format_percent(setup.density) +
                       " of recurrent weights,");
  lines.add("net", setup.number + ", batch " + std::to_string(setup.batch) + ", " +
                       std::to_string(plain.parameters) + " parameters");
  lines.add("budget", format_bytes(setup.budget) + " of the device, " +
                          format_bytes(setup.host_budget) + " of the host's memory");
  lines.add("plain", "fits " + std::to_string(plain.time_steps) + " time steps, in chunks of " +
                         std::to_string(plain.chunk));
  lines.add("plain", "a time step takes " + format_seconds(plain.per_step(plain.trial.measured)) +
                         ", predicted " + format_seconds(plain.per_step(plain.trial.predicted)));
  write_measured(setup.repeat, out);
  write_longest(setup, results, out);
  write_lengths(results, out);
  write_largest(setup, results, out);
  out << '\n';
  write_goals(setup, results, out);
  write_verdicts(results.trials, out);
}

std::string device_double_json(const DeviceDoubleSetup& setup, const DeviceDoubleResults& results) {
  const Goals goals = goals_of(setup, results);
  const DeviceTrial& plain = results.plain;
  Json head = {{"experiment", "double"},
               {"paper", "Bencheikh, Finkbeiner, Neftci 2024"},
               {"device", results.device},
               {"cell", setup.cell},
               {"number", setup.number},
               {"input", setup.input},
               {"hidden", setup.hidden},
               {"batch", setup.batch},
               {"density", setup.density},
               {"budget", setup.budget},
               {"host_budget", setup.host_budget},
               {"repeat", setup.repeat},
               {"parameters", plain.parameters},
               {"plain_time_steps", plain.time_steps},
               {"plain_chunk", plain.chunk},
               {"plain_seconds_per_time_step", plain.per_step(plain.trial.measured)},
               {"predicted_plain_seconds_per_time_step", plain.per_step(plain.trial.predicted)}};
  head["goal"] = {{"ratio", kMarginal}};
  head["goals"] = {{"longest", goals.longest},
                   {"longest_met", goals.is_long},
                   {"largest", goals.largest},
                   {"largest_met", goals.is_large}};
  const auto add_time = [&](const char* name, const DeviceTrial* trial) {
    if (trial == nullptr || !trial->trial.fits) return;
    if (!std::isfinite(trial->trial.measured_ratio)) return;
    head["goals"][name] = trial->trial.measured_ratio;
    head["goals"][std::string(name) + "_met"] = trial->trial.measured_ratio <= kMarginal;
  };
  add_time("longest_time", goals.far);
  add_time("largest_time", goals.wide);
  if (goals.far != nullptr && goals.far->trial.fits) {
    const double ratio = results.in_budget(*goals.far);
    head["goals"]["longest_time_in_budget"] = ratio;
    head["goals"]["longest_time_in_budget_met"] = ratio <= kMarginal;
  }
  return device_json(std::move(head), results.trials);
}

}  // namespace ebb
