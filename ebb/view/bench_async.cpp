// SPDX-License-Identifier: Apache-2.0
// Kukreja, Hückelheim, Gorman 2018.
#include <cmath>

#include "ebb/core/bytes.h"
#include "ebb/core/units.h"
#include "ebb/plan/text.h"
#include "ebb/view/bench_data.h"
#include "ebb/view/bench_plot.h"
#include "ebb/view/bench_values.h"

namespace ebb {
namespace {

constexpr BenchColumn kAsyncColumns[] = {
    {"steps", [](const Json& run) { return count_at(run, "/steps"); }, false},
    {"sweeps", [](const Json& run) { return count_at(run, "/sweeps"); }, false},
    {"interval", [](const Json& run) { return count_at(run, "/interval"); }, false},
    {"transfer / forward", [](const Json& run) { return ratio_at(run, "/ratio"); }, false},
    {"predicted", [](const Json& run) { return seconds_at(run, "/predicted/seconds_per_step"); }},
    {"measured", [](const Json& run) { return seconds_at(run, "/measured/seconds_per_step"); }},
    {"spread", [](const Json& run) { return percent_at(run, "/spread"); }},
    {"forwards", forwards_of_run},
    {"memory", [](const Json& run) { return bytes_at(run, "/footprint"); }},
    {"moved", moved_of_run},
    {"waiting", waiting_of_run}};

constexpr BenchColumn kDeviceAsyncColumns[] = {
    {"time steps", [](const Json& run) { return count_at(run, "/time_steps"); }, false},
    {"budget", budget_of_run, false},
    {"chunk", [](const Json& run) { return count_at(run, "/chunk"); }},
    {"predicted",
     [](const Json& run) { return seconds_at(run, "/predicted/seconds_per_time_step"); }},
    {"measured",
     [](const Json& run) { return seconds_at(run, "/measured/seconds_per_time_step"); }},
    {"of store_all", [](const Json& run) { return ratio_at(run, "/measured/ratio"); }},
    {"spread", [](const Json& run) { return percent_at(run, "/spread"); }},
    {"forwards", forwards_of_run},
    {"memory", [](const Json& run) { return bytes_at(run, "/measured/peak/fast"); }},
    {"moved", moved_of_run},
    {"waiting", waiting_of_run}};

constexpr const char* kAsyncTable =
    "Time, and bytes moved, of a step; forwards: how often a step ran forward on average; waiting: "
    "the part of the time that "
    "waits for transfers.";

Json lines_of_series(const char* title, const char* about, BenchAxis x, const char* value,
                     const Json& runs, const char* place, const Json& level, BenchStyles& styles) {
  BenchPlot plot(title, about, x, {"time", "s"}, value);
  for (const Json& run : runs) plot.add(run_name(run), number_at(run, place), run);
  plot.add_level("if memory had no limit", level);
  return plot.json(styles);
}

void add_async_summary(const Json& summary, BenchPage& page) {
  const Json &places = summary.at("places"), &fastest = summary.at("async_fastest");
  std::string claim = "fastest at " + fastest.dump() + " of " + places.dump() +
                      " places, numbers of steps and ratios; auto left out";
  if (fastest != places) {
    claim += "; elsewhere at most " + percent_at(summary, "/async_slower_at_most") + " slower";
  }
  page.add("async", claim);
  std::string predictions = count_at(summary, "/within_10_percent") + " of " +
                            count_at(summary, "/points") + " within 10 %, median error " +
                            percent_at(summary, "/median_error");
  if (summary.contains("undecided") && summary.at("undecided") != 0) {
    predictions += "; " + count_at(summary, "/undecided") +
                   " of the others undecided, runs more than 10 % apart";
  }
  page.add("Predictions", predictions);
  if (!summary.at("same_forwards").get<bool>()) {
    page.remarks.push_back("Some runs took another number of forward steps than predicted.");
  }
}

// On the CPU: the steps of a heat equation.
BenchPage host_async_page(const Json& json) {
  BenchPage page;
  const auto state = json.at("state").get<Bytes>(), budget = json.at("budget").get<Bytes>();
  const std::string memory =
      budget == kUnlimited ? "without a limit" : "in " + format_bytes(budget);
  page.title = "Asynchronous checkpointing: states of " + format_bytes(state) + " " + memory;
  add_settings(json, page);
  page.add("Work of a step",
           "a nonlinear heat equation, " + count_at(json, "/sweeps") + " sweeps over the state");
  page.add("Budget", budget == kUnlimited ? "no limit" : format_bytes(budget) + " of fast memory");
  for (const Tier& tier : platform_from_json(json.at("platform").dump()).tiers) {
    page.add("Slow tier " + tier.name, "a state written in " +
                                           format_seconds(tier.write_seconds(state)) +
                                           ", read in " + format_seconds(tier.read_seconds(state)));
  }
  add_async_summary(json.at("summary"), page);
  const Json& series = json.at("series");
  const Json level = number_at(json, "/unlimited_seconds_per_step");
  BenchStyles styles;
  const auto add = [&](const char* title, const char* about, BenchAxis x, const char* key,
                       const char* place) {
    if (series.at(key).empty()) return;
    page.parts.push_back(
        lines_of_series(title, about, x, "seconds_per_step", series.at(key), place, level, styles));
  };
  add("Time per step against the number of steps",
      "Of a strategy that hides its transfers, the time of a step does not grow with their number.",
      {"steps", ""}, "steps", "/steps");
  add("Time per step of async against the interval",
      "Steps between two states that async writes, fixed instead of chosen.", {"interval", ""},
      "interval", "/interval");
  add("Time per step against transfer / compute",
      "How long a state takes to be written, against a forward step.", {"transfer / forward", "x"},
      "ratio", "/ratio");
  Json runs = Json::array();
  append_runs("steps", series.at("steps"), nullptr, runs);
  append_runs("interval", series.at("interval"), nullptr, runs);
  append_runs("transfer / compute", series.at("ratio"), nullptr, runs);
  add_verdicts(runs, page);
  page.parts.push_back(run_table("All runs", kAsyncTable, kAsyncColumns, runs));
  return page;
}

BenchPage device_async_page(const Json& json) {
  BenchPage page;
  page.title = "Asynchronous checkpointing in " + bytes_at(json, "/budget") + device_words(json);
  add_settings(json, page);
  page.add("Net", net_words(json, "lstm"));
  page.add("Budget", bytes_at(json, "/budget") + " of the device, " +
                         bytes_at(json, "/host_budget") + " of the host's memory");
  const Json& series = json.at("series");
  BenchStyles styles;
  page.parts.push_back(lines_of_series("Time of a time step against the number of time steps",
                                       "store_all and single_local have no limit on the device.",
                                       {"time steps", ""}, "seconds_per_time_step",
                                       series.at("steps"), "/time_steps", nullptr, styles));
  Json runs = Json::array();
  append_runs("time steps", series.at("steps"), nullptr, runs);
  if (series.contains("chunk")) {
    page.parts.push_back(lines_of_series(
        "Time of a time step of async against the chunk", "A shorter chunk leaves room for states.",
        {"chunk", ""}, "seconds_per_time_step", series.at("chunk"), "/chunk", nullptr, styles));
    append_runs("chunk", series.at("chunk"), nullptr, runs);
  }
  add_verdicts(runs, page);
  page.parts.push_back(run_table("All runs", kAsyncTable, kDeviceAsyncColumns, runs));
  return page;
}

}  // namespace

BenchPage async_page(const Json& json) {
  return json.contains("device") ? device_async_page(json) : host_async_page(json);
}

}  // namespace ebb
