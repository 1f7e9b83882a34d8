// SPDX-License-Identifier: Apache-2.0
#include "ebb/experiments/async_bench_text.h"

#include <ostream>
#include <span>

#include "ebb/core/layout.h"
#include "ebb/core/units.h"
#include "ebb/experiments/figure_data.h"
#include "ebb/experiments/trials_text.h"
#include "ebb/plan/text.h"

namespace ebb {
namespace {

double per_step(std::int64_t count, std::int64_t steps) {
  return static_cast<double>(count) / static_cast<double>(steps);
}

std::string does_not_fit(const AsyncPoint& point) {
  if (!point.least_budget) return "does not fit";
  return "does not fit (least " + format_bytes(*point.least_budget) + ")";
}

// Points at one place of the x axis follow each other; it is named at the first of them.
template <class Name>
void write_series(const char* axis, std::span<const AsyncPoint> points, std::ostream& out,
                  Name name) {
  std::vector<std::vector<std::string>> rows = {
      {axis, "strategy", "predicted", "measured", "error", "forwards", "memory", "waiting"}};
  std::string last;
  for (const AsyncPoint& point : points) {
    const std::string here = name(point);
    std::vector<std::string> row = {here == last ? "" : here, point.strategy};
    last = here;
    if (!point.fits) {
      row.push_back(does_not_fit(point));
    } else {
      const Prediction& found = point.measured;
      row.insert(
          row.end(),
          {format_seconds(point.per_step(point.predicted)), format_seconds(point.per_step(found)),
           format_spread(point.error()), format_number(per_step(found.forwards, point.steps)),
           format_bytes(point.footprint), format_percent(found.stall_seconds / found.seconds)});
    }
    rows.push_back(std::move(row));
  }
  write_table(rows, out);
}

constexpr CsvColumn kColumns[] = {{"series", "/series"},
                                  {"strategy", "/strategy"},
                                  {"steps", "/steps"},
                                  {"sweeps", "/sweeps"},
                                  {"interval", "/interval"},
                                  {"ratio", "/ratio"},
                                  {"predicted_seconds_per_step", "/predicted/seconds_per_step"},
                                  {"measured_seconds_per_step", "/measured/seconds_per_step"},
                                  {"predicted_forwards", "/predicted/forwards"},
                                  {"measured_forwards", "/measured/forwards"},
                                  {"footprint", "/footprint"},
                                  {"stall_seconds", "/measured/stall_seconds"},
                                  {"spread", "/spread"}};

Json json_of(const Prediction& found, const AsyncPoint& point, const Platform& platform) {
  return found_json({{"seconds_per_step", point.per_step(found)}, {"seconds", found.seconds}},
                    found, platform);
}

Json json_of(const AsyncPoint& point, const Platform& platform) {
  Json json = {{"strategy", point.strategy},
               {"steps", point.steps},
               {"sweeps", point.sweeps},
               {"interval", point.interval ? Json(*point.interval) : Json()},
               {"ratio", point.ratio()},
               {"forward_seconds", point.forward_seconds},
               {"transfer_seconds", point.transfer_seconds},
               {"fits", point.fits}};
  if (!point.fits) {
    json["least_budget"] = point.least_budget ? Json(*point.least_budget) : Json();
    return json;
  }
  json["chosen"] = point.chosen;
  Json& parameters = json["parameters"] = Json::object();
  for (const auto& [name, value] : point.parameters) parameters[name] = value;
  json["predicted"] = json_of(point.predicted, point, platform);
  json["measured"] = json_of(point.measured, point, platform);
  json["footprint"] = point.footprint;
  json["spread"] = point.spread();
  json["exact"] = point.exact;
  json["same_gradient"] = point.same_gradient;
  return json;
}

Json json_of(std::span<const AsyncPoint> points, const Platform& platform) {
  Json all = Json::array();
  for (const AsyncPoint& point : points) all.push_back(json_of(point, platform));
  return all;
}

}  // namespace

void write_async(const AsyncSetup& setup, const AsyncResults& results, std::ostream& out) {
  const StepCost& step = results.chain.at(0);
  const Tier& tier = results.platform.tiers.front();
  const std::int64_t last = setup.steps.back();
  Lines lines(out);
  lines.add("step", format_bytes(step.state) + " of floats, " + std::to_string(setup.sweeps) +
                        (setup.sweeps == 1 ? " sweep" : " sweeps"));
  lines.add("step", "forward " + format_seconds(step.forward) + ", record " +
                        format_seconds(step.record) + ", backward " +
                        format_seconds(step.backward));
  lines.add("budget", format_bytes(results.budget) + " of fast memory");
  lines.add("tier", tier.name + ": a state written in " +
                        format_seconds(tier.write_seconds(step.state)) + ", read in " +
                        format_seconds(tier.read_seconds(step.state)));
  const double copy = static_cast<double>(step.state) / results.platform.copy_rate;
  lines.add("copy", "a state within fast memory in " + format_seconds(copy));
  lines.add("no limit",
            format_seconds(step.record + step.backward) + " a step, if memory had no limit");
  lines.add("columns", "seconds, forwards per step; memory: fast and memory tiers");
  lines.add("columns", "disk_revolve and h_revolve as published: transfers take turns");

  out << "\n(a) Time per step against the number of steps\n\n";
  write_series("steps", results.by_steps, out,
               [](const AsyncPoint& point) { return std::to_string(point.steps); });
  if (!results.by_interval.empty()) {
    out << "\n(b) Time per step of async against the interval, " << last << " steps\n\n";
    write_series("interval", results.by_interval, out,
                 [](const AsyncPoint& point) { return std::to_string(*point.interval); });
  }
  out << "\n(c) Time per step against transfer / compute, " << last << " steps\n\n";
  write_series("ratio", results.by_ratio, out,
               [](const AsyncPoint& point) { return format_number(point.ratio()); });

  const AsyncSummary summary = summary_of(results);
  out << '\n';
  const std::string claim = "fastest at " + std::to_string(summary.fastest) + " of " +
                            std::to_string(summary.places) + " places of (a) and (c)";
  lines.add("async", claim + "; auto left out");
  if (summary.fastest < summary.places) {
    lines.add("async", "elsewhere at most " + format_percent(summary.slower) + " slower");
  }
  lines.add("predictions", std::to_string(summary.near) + " of " + std::to_string(summary.points) +
                               " times within 10 %, median error " +
                               format_percent(summary.median_error));
  if (summary.noisy > 0) {
    lines.add("predictions", "of the others, " + std::to_string(summary.noisy) +
                                 " undecided: runs more than 10 % apart");
  }
  lines.add("predictions",
            summary.same_forwards ? "every count of forwards exact" : "counts of forwards differ");
  lines.add("spread", spread_words(summary.spread));
  if (!summary.exact) lines.add("gradients", "NOT EXACT: a tier keeps nothing");
  lines.add("gradients",
            summary.same_gradients ? "the same bits whatever the strategy" : "not the same bits");
}

std::string async_json(const AsyncSetup& setup, const AsyncResults& results) {
  const Platform& platform = results.platform;
  const AsyncSummary summary = summary_of(results);
  Json json = {
      {"experiment", "async"},
      {"paper", "Kukreja, Hueckelheim, Gorman 2018"},
      {"state", results.chain.at(0).state},
      {"sweeps", setup.sweeps},
      {"budget", results.budget},
      {"repeat", setup.repeat},
      {"unlimited_seconds_per_step", results.chain.at(0).record + results.chain.at(0).backward},
      {"chain", Json::parse(to_json(results.chain))},
      {"platform", Json::parse(to_json(platform))},
      {"summary",
       {{"places", summary.places},
        {"async_fastest", summary.fastest},
        {"async_slower_at_most", summary.slower},
        {"points", summary.points},
        {"within_10_percent", summary.near},
        {"undecided", summary.noisy},
        {"spread", summary.spread},
        {"median_error", summary.median_error},
        {"exact", summary.exact},
        {"same_gradients", summary.same_gradients},
        {"same_forwards", summary.same_forwards}}},
      {"series",
       {{"steps", json_of(results.by_steps, platform)},
        {"interval", json_of(results.by_interval, platform)},
        {"ratio", json_of(results.by_ratio, platform)}}}};
  return json.dump();
}

void write_async_csv(const AsyncResults& results, std::ostream& out) {
  Json points = Json::array();
  append_series("steps", json_of(results.by_steps, results.platform), points);
  append_series("interval", json_of(results.by_interval, results.platform), points);
  append_series("ratio", json_of(results.by_ratio, results.platform), points);
  write_csv(kColumns, points, out);
}

}  // namespace ebb
