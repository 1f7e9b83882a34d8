// SPDX-License-Identifier: Apache-2.0
// Bencheikh, Finkbeiner, Neftci 2024.
#include <cmath>

#include "ebb/core/bytes.h"
#include "ebb/core/units.h"
#include "ebb/plan/text.h"
#include "ebb/view/bench_data.h"
#include "ebb/view/bench_plot.h"
#include "ebb/view/bench_values.h"

namespace ebb {
namespace {

constexpr BenchColumn kDoubleColumns[] = {
    {"time steps", [](const Json& run) { return count_at(run, "/time_steps"); }, false},
    {"units", [](const Json& run) { return count_at(run, "/hidden"); }, false},
    {"input spikes", [](const Json& run) { return percent_at(run, "/rate"); }, false},
    {"activity", [](const Json& run) { return percent_at(run, "/activity"); }, false},
    {"budget", budget_of_run, false},
    {"predicted", [](const Json& run) { return ratio_at(run, "/predicted/ratio"); }},
    {"measured", [](const Json& run) { return ratio_at(run, "/measured/ratio"); }},
    {"a time step",
     [](const Json& run) { return seconds_at(run, "/measured/seconds_per_time_step"); }},
    {"spread", [](const Json& run) { return percent_at(run, "/spread"); }},
    {"chunk", [](const Json& run) { return count_at(run, "/chunk"); }},
    {"forwards", forwards_of_run},
    {"memory", [](const Json& run) { return bytes_at(run, "/measured/peak/fast"); }},
    {"moved", moved_of_run}};

constexpr const char* kDoubleTable =
    "Times what store_all takes with memory that has no limit; memory: local; moved: bytes written "
    "and read, of a time step; "
    "forwards: how often a step ran forward on average.";

// Of a series the most that fits, by strategy: "1440 (9.6 x)". store_all is the first.
Json most_table(const std::string& title, const char* what, const Json& runs) {
  Json rows = Json::array();
  const Json plain = runs.empty() ? Json() : number_at(runs.front(), "/most");
  for (const Json& run : runs) {
    if (!run.contains("most") || run_name(run) != run.at("strategy").get<std::string>()) continue;
    const Json& most = run.at("most");
    const bool more = run.value("more_may_fit", false);
    const bool compared = most.is_number() && !plain.is_null() && plain != 0;
    rows.push_back(
        {run_name(run), most.is_null() ? "no limit" : most.dump() + (more ? " or more" : ""),
         compared
             ? format_number(std::floor(10 * most.get<double>() / plain.get<double>()) / 10) + " x"
             : "-"});
  }
  const Json table = {{"title", title},
                      {"about", ""},
                      {"head", {"strategy", what, "of store_all"}},
                      {"rows", rows}};
  return {{"tables", Json::array({table})}};
}

Json ratio_lines(const std::string& title, const std::string& about, BenchAxis x, const char* place,
                 const Json& runs, const Json& goal, BenchStyles& styles) {
  BenchPlot plot(title, about, x, {"of store_all", "x"}, "ratio");
  plot.add_level("the goal", goal);
  for (const Json& run : runs) plot.add(run_name(run), number_at(run, place), run);
  return plot.json(styles);
}

Json bandwidth_lines(const std::string& title, const Json& points, BenchStyles& styles) {
  BenchPlot plot(
      title, "Predicted only: the measured rates of the slow memory, multiplied by this factor.",
      {"times the bandwidth", "x"}, {"of store_all", "x"}, "ratio");
  for (const Json& point : points) {
    for (const auto& [strategy, ratio] : point.at("predicted_ratio").items()) {
      plot.add_predicted(strategy, number_at(point, "/factor"), ratio);
    }
  }
  return plot.json(styles);
}

// What an arrangement's charts have in common with those of others.
struct Arranged {
  Json chunk, goal;  // null where each run says its chunk, and where there is no goal
  BenchStyles styles = {};
  Json runs = Json::array();  // of all of them
};

bool has_runs(const Json& series, const char* key) {
  return series.contains(key) && !series.at(key).empty();
}

// "Over ram: time against length", or "Time against length" where there is one arrangement.
std::string title_over(const std::string& over, std::string rest) {
  if (over.empty()) rest[0] = static_cast<char>(rest[0] - 'a' + 'A');
  return over + rest;
}

// The most that fits, and what it costs.
void add_most(const std::string& over, const char* fits, const char* costs, const char* what,
              const Json& runs, BenchPage& page) {
  page.parts.push_back(most_table(title_over(over, fits), what, runs));
  page.parts.push_back(
      ratio_bars(title_over(over, costs),
                 "Times what store_all takes for as much with memory that has no limit.", runs));
}

// The charts of one slow memory; `over` opens their titles.
void add_arrangement(const std::string& over, const Json& series, Arranged& common,
                     BenchPage& page) {
  if (has_runs(series, "longest")) {
    add_most(over, "the longest sequence that fits", "what a long sequence costs", "time steps",
             series.at("longest"), page);
  }
  if (has_runs(series, "length")) {
    page.parts.push_back(ratio_lines(
        title_over(over, "time against length"), "Transfers hidden behind compute.",
        {"time steps", ""}, "/time_steps", series.at("length"), common.goal, common.styles));
  }
  if (has_runs(series, "largest")) {
    add_most(over, "the largest net that fits", "what a large net costs", "units",
             series.at("largest"), page);
  }
  if (has_runs(series, "activity")) {
    page.parts.push_back(ratio_lines(
        title_over(over, "time against activity"), "The share of units that spike in a time step.",
        {"activity", "%"}, "/activity", series.at("activity"), common.goal, common.styles));
  }
  if (has_runs(series, "bandwidth")) {
    page.parts.push_back(bandwidth_lines(title_over(over, "time against bandwidth"),
                                         series.at("bandwidth"), common.styles));
  }
  Json runs = Json::array();
  for (const char* key : {"longest", "length", "largest", "activity"}) {
    if (has_runs(series, key)) append_runs(key, series.at(key), common.chunk, runs);
  }
  page.parts.push_back(run_table(title_over(over, "all runs"), kDoubleTable, kDoubleColumns, runs));
  for (Json& run : runs) common.runs.push_back(std::move(run));
}

// What a run on a GPU says itself: {"longest":12.5,"longest_met":true,…}
void add_goals(const Json& goals, BenchPage& page) {
  const auto add = [&](const char* key, const char* label, const char* missed) {
    const std::string met_key = std::string(key) + "_met";
    if (number_at(goals, std::string("/") + key).is_null() || !goals.contains(met_key)) return;
    const bool met = goals.at(met_key).get<bool>();
    const std::string value = ratio_at(goals, std::string("/") + key);
    page.add(label, value + (met ? ": met" : ": missed"));
    if (!met) page.remarks.push_back(std::string(missed) + " is missed: " + value + ".");
  };
  add("longest", "Longest sequence of auto", "The goal for the longest sequence");
  add("largest", "Largest net of auto", "The goal for the largest net");
  add("longest_time", "Time of the long sequence", "The goal for the time of a long sequence");
  add("longest_time_in_budget", "The same, store_all in the budget",
      "The goal for the time of a long sequence against store_all in the budget");
  add("largest_time", "Time of the large net", "The goal for the time of a large net");
}

// Of the last run of auto that hides its transfers: of these it is the one that was asked for.
void add_goal_of(const std::string& label, const Json& runs, const Json& goal, BenchPage& page) {
  const Json* last = nullptr;
  for (const Json& run : runs) {
    const bool counts = run_name(run) == "auto" && run_fits(run);
    if (counts && !number_at(run, "/measured/ratio").is_null()) last = &run;
  }
  if (last == nullptr || goal.is_null()) return;
  const Verdict verdict = verdict_of(*last, goal);
  page.add(label, verdict_words(*last, verdict));
  if (verdict == Verdict::missed) {
    page.remarks.push_back(label + ": the goal is missed, " + ratio_at(*last, "/measured/ratio") +
                           ".");
  }
}

void add_host_arrangement(const Json& found, Arranged& common, BenchPage& page) {
  const Platform platform = platform_from_json(found.at("platform").dump());
  const std::string tier = platform.tiers.empty() ? "no tier" : platform.tiers.front().name;
  if (found.contains("within_1.1x")) {
    const Json& within = found.at("within_1.1x");
    const Json &furthest = within.at("times_plain"), &searched = within.at("searched");
    page.add("auto over " + tier,
             "predicted within 1.1 x up to " + furthest.dump() + " times as long" +
                 (furthest != searched ? ", beyond at " + searched.dump() : ""));
  }
  const Json& series = found.at("series");
  add_goal_of("A long sequence over " + tier, series.at("longest"), common.goal, page);
  add_goal_of("A large net over " + tier, series.at("largest"), common.goal, page);
  add_arrangement("Over " + tier + ": ", series, common, page);
}

}  // namespace

BenchPage double_page(const Json& json) {
  BenchPage page;
  const bool is_device = json.contains("device");
  const std::string cell = json.contains("cell") ? json.at("cell").get<std::string>() : "lif";
  page.title = "Two levels of memory: " + count_at(json, "/hidden") + " units in " +
               bytes_at(json, "/budget") + device_words(json);
  add_settings(json, page);
  page.add("Net",
           net_words(json, cell) + ", " + percent_at(json, "/density") + " of recurrent weights");
  page.add("Budget", bytes_at(json, "/budget") +
                         (is_device ? " of the device, " + bytes_at(json, "/host_budget") +
                                          " of the host's memory"
                                    : " of local memory"));
  page.add("store_all",
           "plain backpropagation: fits " + count_at(json, "/plain_time_steps") + " time steps");
  Arranged common{.chunk = number_at(json, "/chunk"), .goal = number_at(json, "/goal/ratio")};
  if (!common.goal.is_null()) {
    page.add("Goal",
             "auto takes at most " + ratio_at(json, "/goal/ratio") + " of store_all's time");
  }
  if (is_device) {
    if (json.contains("goals")) add_goals(json.at("goals"), page);
    add_arrangement("", json.at("series"), common, page);
  } else {
    page.add("The paper's schedule",
             ratio_at(json, "/paper_ratio") + " by these seconds: each step forward three times");
    for (const Json& found : json.at("arrangements")) {
      add_host_arrangement(found, common, page);
    }
  }
  add_verdicts(common.runs, page);
  return page;
}

}  // namespace ebb
