// SPDX-License-Identifier: Apache-2.0
#include "ebb/experiments/gruslys_text.h"

#include <algorithm>
#include <cmath>
#include <ostream>
#include <span>

#include "ebb/core/layout.h"
#include "ebb/core/units.h"
#include "ebb/experiments/trials_text.h"
#include "ebb/plan/text.h"

namespace ebb {
namespace {

std::string memory_of(const GruslysPoint& point) {
  if (point.percent) return std::to_string(*point.percent) + " %";
  if (point.trial.strategy == "sqrt") return "its own";
  return point.trial.budget == kUnlimited ? "no limit" : "Chen's";
}

std::string strategy_of(const Trial& trial) {
  if (trial.strategy != "auto" || !trial.fits) return trial.strategy;
  return "auto: " + trial.chosen;
}

// A step.
double forwards(const GruslysPoint& point, const GruslysResults& results) {
  const std::int64_t steps = (point.time_steps + results.chunk - 1) / results.chunk;
  return static_cast<double>(point.trial.measured.forwards) / static_cast<double>(steps);
}
std::string forwards_of(const GruslysPoint& point, const GruslysResults& results) {
  return format_number(std::round(1000 * forwards(point, results)) / 1000);
}

std::vector<std::string> ratios(const GruslysPoint& point, const GruslysResults& results) {
  const Trial& trial = point.trial;
  const Bytes peak = trial.measured.peak[0];
  const double part = static_cast<double>(peak) / static_cast<double>(results.plain);
  return {format_ratio(trial.predicted_ratio),
          format_ratio(trial.measured_ratio),
          format_spread(trial.spread()),
          forwards_of(point, results),
          format_bytes(peak),
          format_percent(std::round(1000 * part) / 1000)};
}

std::vector<std::string> seconds(const GruslysPoint& point, const GruslysResults& results) {
  const Trial& trial = point.trial;
  return {format_seconds(point.per_step(trial.predicted)),
          format_seconds(point.per_step(trial.measured)), format_ratio(trial.measured_ratio),
          forwards_of(point, results)};
}

void write_by_memory(const GruslysResults& results, std::ostream& out) {
  std::vector<std::vector<std::string>> rows = {
      {"memory", "strategy", "predicted", "measured", "spread", "forwards", "peak", "share"}};
  for (const GruslysPoint& point : results.by_memory) {
    auto& row = rows.emplace_back(std::vector{memory_of(point), strategy_of(point.trial)});
    if (!point.trial.fits) {
      row.push_back(does_not_fit(point.trial));
      continue;
    }
    for (std::string& cell : ratios(point, results)) row.push_back(std::move(cell));
  }
  write_table(rows, out);
}

void write_by_steps(const GruslysResults& results, std::ostream& out) {
  std::vector<std::vector<std::string>> rows = {
      {"steps", "memory", "strategy", "predicted", "measured", "ratio", "forwards"}};
  std::int64_t last = 0;
  for (const GruslysPoint& point : results.by_steps) {
    const std::string steps = point.time_steps == last ? "" : std::to_string(point.time_steps);
    last = point.time_steps;
    auto& row = rows.emplace_back(std::vector{steps, memory_of(point), strategy_of(point.trial)});
    if (!point.trial.fits) {
      row.push_back(does_not_fit(point.trial));
      continue;
    }
    for (std::string& cell : seconds(point, results)) row.push_back(std::move(cell));
  }
  write_table(rows, out);
}

bool all_same(std::span<const GruslysPoint> points) {
  return std::ranges::all_of(points, [](const GruslysPoint& point) {
    return !point.trial.fits || point.trial.same_gradient;
  });
}

const GruslysPoint* goal_of(const GruslysResults& results) {
  for (const GruslysPoint& point : results.by_memory) {
    if (point.percent == kGoalPercent && point.trial.fits) return &point;
  }
  return nullptr;
}

void write_setup(const GruslysSetup& setup, const GruslysResults& results, std::ostream& out) {
  const StepCost& step = results.chain.at(0);
  const auto chunk = static_cast<double>(results.chunk);
  Lines lines(out);
  lines.add("net", "lstm, " + std::to_string(setup.input) + " inputs, " +
                       std::to_string(setup.hidden) + " units, batch " +
                       std::to_string(setup.batch) + ", " + std::to_string(results.parameters) +
                       " parameters");
  lines.add("time step", "forward " + format_seconds(step.forward / chunk) + ", record " +
                             format_seconds(step.record / chunk) + ", backward " +
                             format_seconds(step.backward / chunk));
  lines.add("steps", "of plans: " + std::to_string(results.chunk) + " time steps; state " +
                         format_bytes(step.state) + ", tape " + format_bytes(step.tape));
  lines.add("plain", format_bytes(results.plain) + " keep all of " + std::to_string(setup.steps) +
                         " time steps: 100 % of memory");
  lines.add("measured", "forward and backward of the whole sequence, the best of " +
                            std::to_string(setup.repeat) + "; all");
  lines.add("measured", "rows of one length run in turn. Ratios are to store_all.");
  lines.add("spread", "how much longer the slowest run took than the best");
  lines.add("memory", "what the run holds: states, tapes, working set; no weights,");
  lines.add("memory", "which are the same for every strategy; share: of plain");
}

Json points_json(std::span<const GruslysPoint> points) {
  Json all = Json::array();
  for (const GruslysPoint& point : points) {
    Json& json = all.emplace_back(trial_json(point.trial, point.time_steps, {}));
    json["percent"] = point.percent ? Json(*point.percent) : Json();
  }
  return all;
}

}  // namespace

void write_gruslys(const GruslysSetup& setup, const GruslysResults& results, std::ostream& out) {
  write_setup(setup, results, out);
  out << "\n(a) Time in a part of plain memory, " << setup.steps << " time steps\n"
      << "    Ratios of time. auto is the planner's choice in that budget; sqrt is Chen's\n"
      << "    rule, which takes the memory it needs; the last row is auto in the same.\n\n";
  write_by_memory(results, out);
  if (!results.by_steps.empty()) {
    out << "\n(b) Time per time step against the number of time steps\n"
        << "    Budgets stay as they are: percents of plain memory at " << setup.steps
        << " time steps.\n    Chen's rule takes memory that grows with the sequence.\n\n";
    write_by_steps(results, out);
  }
  out << '\n';
  Lines lines(out);
  if (const GruslysPoint* goal = goal_of(results)) {
    const StepCost& step = results.chain.at(0);
    lines.add("goal", "in 5 % of memory: predicted " + format_ratio(goal->trial.predicted_ratio) +
                          ", measured " + format_ratio(goal->trial.measured_ratio) +
                          missed_words(goal->trial, kGoalRatio));
    if (is_undecided(goal->trial, kGoalRatio)) lines.add("goal", undecided_words(goal->trial));
    lines.add("goal", "backward takes " +
                          format_number(std::round(100 * step.backward / step.forward) / 100) +
                          " forwards here; with 2, as the paper counts,");
    lines.add("goal", "it would be " + format_ratio((forwards(*goal, results) + 2) / 3));
  }
  double spread = 0;
  for (const auto* points : {&results.by_memory, &results.by_steps}) {
    for (const GruslysPoint& point : *points) {
      if (point.trial.fits) spread = std::max(spread, point.trial.spread());
    }
  }
  lines.add("spread", spread_words(spread));
  lines.add("gradients", all_same(results.by_memory) && all_same(results.by_steps)
                             ? "the same bits as store_all's in every run"
                             : "not the same bits as store_all's");
}

std::string gruslys_json(const GruslysSetup& setup, const GruslysResults& results) {
  const GruslysPoint* goal = goal_of(results);
  const Json json = {
      {"experiment", "gruslys"},
      {"paper", "Gruslys, Munos, Danihelka, Lanctot, Graves 2016"},
      {"input", setup.input},
      {"hidden", setup.hidden},
      {"batch", setup.batch},
      {"time_steps", setup.steps},
      {"chunk", results.chunk},
      {"grain", results.chunk},  // its earlier name
      {"parameters", results.parameters},
      {"plain_bytes", results.plain},
      {"repeat", setup.repeat},
      {"chain", Json::parse(to_json(results.chain))},
      {"goal", {{"percent", kGoalPercent}, {"ratio", kGoalRatio}}},
      {"summary",
       {{"same_gradients", all_same(results.by_memory) && all_same(results.by_steps)},
        {"ratio_in_5_percent", goal != nullptr ? Json(goal->trial.measured_ratio) : Json()}}},
      {"series",
       {{"memory", points_json(results.by_memory)}, {"steps", points_json(results.by_steps)}}}};
  return json.dump();
}

void write_gruslys_csv(const GruslysResults& results, std::ostream& out) {
  Json points = Json::array();
  append_series("memory", points_json(results.by_memory), points);
  append_series("steps", points_json(results.by_steps), points);
  write_csv(trial_columns({{"series", "/series"}, {"percent", "/percent"}}), points, out);
}

}  // namespace ebb
