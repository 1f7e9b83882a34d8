// SPDX-License-Identifier: Apache-2.0
#include "ebb/experiments/double_text.h"

#include <algorithm>
#include <cmath>
#include <ostream>
#include <span>
#include <utility>

#include "ebb/core/layout.h"
#include "ebb/core/units.h"
#include "ebb/experiments/trials_text.h"

namespace ebb {
namespace {

using Row = std::vector<std::string>;

std::string rounded_number(double value, double unit) {
  return format_number(std::round(value / unit) * unit);
}

std::string name_of(const Trial& trial) {
  return trial.strategy == "store_all" ? "plain" : trial.strategy;
}
std::string name_and_choice(const Trial& trial) {
  if (trial.strategy != "auto" || !trial.fits) return name_of(trial);
  return "auto: " + trial.chosen;
}

std::string moved_of(const DoublePoint& point) {
  Bytes bytes = 0;
  for (const Prediction::Traffic& tier : point.trial.measured.moved) {
    bytes += tier.written + tier.read;
  }
  const Bytes each = bytes / point.time_steps;
  // Whole numbers are exact enough, and narrow.
  return format_bytes(each < 10_KiB ? each : each / 1_KiB * 1_KiB);
}

std::string forwards_of(const DoublePoint& point, std::int64_t chunk) {
  const std::int64_t steps = (point.time_steps + chunk - 1) / chunk;
  const auto forwards = static_cast<double>(point.trial.measured.forwards);
  return rounded_number(forwards / static_cast<double>(steps), 0.001);
}

// What tables end with: ratios, bytes moved and, before these, forwards.
void add_ratios(const DoublePoint& point, Row& row) {
  if (!point.trial.fits) {
    row.push_back(does_not_fit(point.trial));
    return;
  }
  row.insert(row.end(), {format_ratio(point.trial.predicted_ratio),
                         format_ratio(point.trial.measured_ratio), moved_of(point)});
}
void add_costs(const DoublePoint& point, std::int64_t chunk, Row& row) {
  add_ratios(point, row);
  if (point.trial.fits) row.insert(row.end() - 1, forwards_of(point, chunk));
}

Row titles(Row first) {
  first.insert(first.end(), {"predicted", "measured", "forwards", "moved"});
  return first;
}

std::string most_of(std::int64_t most) {
  return most == kUnlimited ? "no limit" : std::to_string(most);
}
std::string times_of(std::int64_t most, std::int64_t plain) {
  if (most == kUnlimited) return "no limit";
  return rounded_number(static_cast<double>(most) / static_cast<double>(plain), 0.1) + "x";
}

void write_longest(const DoubleSetup& setup, const DoubleResults& results,
                   std::span<const DoublePoint> points, std::ostream& out) {
  std::vector<Row> most = {{"strategy", "time steps", "of plain"}};
  std::vector<Row> costs = {titles({"strategy", "steps", "transfers"})};
  for (const DoublePoint& point : points) {
    const Trial& trial = point.trial;
    if (!trial.sync) {
      most.push_back(
          {name_of(trial), most_of(point.most), times_of(point.most, results.plain_steps)});
    }
    Row& row = costs.emplace_back(Row{name_and_choice(trial), std::to_string(point.time_steps),
                                      trial.sync ? "in turn" : "hidden"});
    add_costs(point, setup.chunk, row);
  }
  out << "(a) The longest sequence that fits the budget, with room in the slow memory\n\n";
  write_table(most, out);
  out << "\n(b) What " << setup.long_factor
      << " times the time steps of plain cost, or the longest if that is less:\n"
      << "    time against plain with memory that has no limit, over the same steps\n\n";
  write_table(costs, out);
}

void write_lengths(const DoubleSetup& setup, const DoubleResults& results,
                   const DoubleArrangement& found, std::ostream& out) {
  std::vector<Row> rows = {titles({"steps", "of plain", "strategy"})};
  std::int64_t last = 0;
  for (const DoublePoint& point : found.by_length) {
    const bool same = std::exchange(last, point.time_steps) == point.time_steps;
    Row& row = rows.emplace_back(Row{same ? "" : std::to_string(point.time_steps),
                                     same ? "" : times_of(point.time_steps, results.plain_steps),
                                     name_and_choice(point.trial)});
    add_costs(point, setup.chunk, row);
  }
  out << "\n(c) Time against the length, transfers hidden\n\n";
  write_table(rows, out);
}

void write_largest(const DoubleSetup& setup, const DoubleResults& results,
                   std::span<const DoublePoint> points, std::ostream& out) {
  std::vector<Row> rows = {
      {"strategy", "most", "of plain", "units", "weights", "predicted", "measured", "moved"}};
  const std::int64_t plain = points.empty() ? 1 : points.front().most;
  for (const DoublePoint& point : points) {
    Row& row = rows.emplace_back(Row{name_of(point.trial), std::to_string(point.most),
                                     times_of(point.most, plain), std::to_string(point.hidden),
                                     std::to_string(point.parameters)});
    add_ratios(point, row);
  }
  out << "\n(d) The largest net over " << results.plain_steps
      << " time steps: most units that fit the budget, and what\n    " << setup.large_factor
      << " times the units cost, or the most if that is less. Weights are outside the\n"
      << "    budget, the same for every strategy.\n\n";
  write_table(rows, out);
}

void write_activity(const DoubleSetup& setup, std::span<const DoublePoint> points,
                    std::ostream& out) {
  std::vector<Row> rows = {
      {"input", "activity", "plain", "strategy", "predicted", "measured", "moved"}};
  double last = -1;
  for (const DoublePoint& point : points) {
    const bool same = std::exchange(last, point.rate) == point.rate;
    Row& row =
        rows.emplace_back(same ? Row{"", "", ""}
                               : Row{format_percent(point.rate),
                                     format_percent(std::round(1000 * point.activity) / 1000),
                                     format_seconds(point.plain_seconds)});
    row.push_back(name_and_choice(point.trial));
    add_ratios(point, row);
  }
  out << "\n(e) Against activity, at " << setup.long_factor
      << " times the time steps: rate of input spikes, share of\n"
      << "    units that spike, seconds of a time step of plain. Membranes are moved as\n"
      << "    they are: bytes change only with the plan.\n\n";
  write_table(rows, out);
}

void write_bandwidth(const DoubleSetup& setup, const DoubleArrangement& found, std::ostream& out) {
  std::vector<Row> rows = {{"bandwidth"}};
  for (const auto& [strategy, ratio] : found.by_bandwidth.front().ratios) {
    rows[0].push_back(strategy);
  }
  for (const BandwidthPoint& point : found.by_bandwidth) {
    const bool slower = point.factor < 1;
    Row& row = rows.emplace_back(
        Row{slower ? "1/" + format_number(1 / point.factor) : format_number(point.factor)});
    for (const auto& [strategy, ratio] : point.ratios) {
      row.push_back(ratio ? format_ratio(*ratio) : "does not fit");
    }
  }
  out << "\n(f) Against the slow memory's bandwidth, at " << setup.long_factor
      << " times the time steps: time\n    predicted, with the measured rates multiplied by this "
         "factor\n\n";
  write_table(rows, out);
}

const DoublePoint* last_auto(std::span<const DoublePoint> points) {
  const DoublePoint* found = nullptr;
  for (const DoublePoint& point : points) {
    if (point.trial.strategy == "auto" && !point.trial.sync && point.trial.fits) found = &point;
  }
  return found;
}

void write_goal(const char* what, const DoublePoint* point, Lines& lines) {
  if (point == nullptr) return;
  lines.add("auto", std::string(what) + ": predicted " +
                        format_ratio(point->trial.predicted_ratio) + ", measured " +
                        format_ratio(point->trial.measured_ratio) +
                        missed_words(point->trial, kMarginal));
  if (is_undecided(point->trial, kMarginal)) lines.add("auto", undecided_words(point->trial));
}

void write_arrangement(const DoubleSetup& setup, const DoubleResults& results,
                       const DoubleArrangement& found, std::ostream& out) {
  const Tier& tier = found.platform.tiers.front();
  const StepCost& step = results.chain.at(0);
  out << "\nLocal memory over " << tier.name << "\n\n";
  Lines lines(out);
  for (const auto& [what, bytes] : {std::pair("state", step.state), {"tape", step.tape}}) {
    lines.add("tier", std::string("a ") + what + " written in " +
                          format_seconds(tier.write_seconds(bytes)) + ", read in " +
                          format_seconds(tier.read_seconds(bytes)));
  }
  out << '\n';
  write_longest(setup, results, found.longest, out);
  write_lengths(setup, results, found, out);
  write_largest(setup, results, found.largest, out);
  write_activity(setup, found.by_activity, out);
  write_bandwidth(setup, found, out);
  out << '\n';
  Lines summary(out);
  write_goal((std::to_string(setup.long_factor) + " times as long").c_str(),
             last_auto(found.longest), summary);
  write_goal((std::to_string(setup.large_factor) + " times as large").c_str(),
             last_auto(found.largest), summary);
  const bool ended = found.furthest < found.searched;
  summary.add("auto", "predicted within 1.1x up to " + std::to_string(found.furthest) +
                          " times as long" +
                          (ended ? ", beyond at " + std::to_string(found.searched) : ""));
}

// Of all runs: whether gradients have plain's bits, and how far runs of one row were apart.
struct Runs {
  bool same_gradients = true;
  double spread = 0;
};
Runs all_runs(const DoubleResults& results) {
  Runs runs;
  for (const DoubleArrangement& found : results.arrangements) {
    for (const auto* points :
         {&found.longest, &found.by_length, &found.largest, &found.by_activity}) {
      for (const DoublePoint& point : *points) {
        if (!point.trial.fits) continue;
        runs.same_gradients &= point.trial.same_gradient;
        runs.spread = std::max(runs.spread, point.trial.spread());
      }
    }
  }
  return runs;
}

}  // namespace

void write_double(const DoubleSetup& setup, const DoubleResults& results, std::ostream& out) {
  const StepCost& step = results.chain.at(0);
  const auto chunk = static_cast<double>(setup.chunk);
  Lines lines(out);
  lines.add("net", "lif, " + std::to_string(setup.input) + " inputs, " +
                       std::to_string(setup.hidden) + " units, " + format_percent(setup.density) +
                       " of recurrent weights");
  lines.add("net", "leaky readout of " + std::to_string(setup.output) + ", batch " +
                       std::to_string(setup.batch) + ", " + std::to_string(results.parameters) +
                       " parameters");
  lines.add("activity", format_percent(std::round(1000 * results.activity) / 1000) +
                            " of units spike in a time step, " + format_percent(setup.rate) +
                            " of inputs");
  lines.add("time step", "forward " + format_seconds(step.forward / chunk) + ", record " +
                             format_seconds(step.record / chunk) + ", backward " +
                             format_seconds(step.backward / chunk));
  lines.add("steps", "of plans: " + std::to_string(setup.chunk) + " time steps; state " +
                         format_bytes(step.state) + ", tape " + format_bytes(step.tape));
  lines.add("budget", format_bytes(setup.budget) + " of local memory: plain fits " +
                          std::to_string(results.plain_steps) + " time steps");
  lines.add("measured", "forward and backward, the best of " + std::to_string(setup.repeat) +
                            "; rows of one length");
  lines.add("measured", "run in turn. moved: bytes written and read, a time step");
  lines.add("paper", "each step forward three times, (3f+b)/(f+b): " +
                         format_ratio(results.paper_ratio()) + " with these");
  lines.add("paper", "seconds; double here re-runs only what it has to");
  for (const DoubleArrangement& found : results.arrangements) {
    write_arrangement(setup, results, found, out);
  }
  out << '\n';
  Lines last(out);
  const bool keep =
      std::ranges::all_of(setup.tiers, [](const RealTier& tier) { return tier.tier.keeps; });
  if (!keep) last.add("gradients", "NOT EXACT: a tier keeps nothing");
  const Runs runs = all_runs(results);
  last.add("spread", spread_words(runs.spread));
  last.add("gradients", runs.same_gradients ? "the same bits as plain's in every run"
                                            : "not the same bits as plain's");
}

}  // namespace ebb
