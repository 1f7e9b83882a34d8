// SPDX-License-Identifier: Apache-2.0
// Gruslys, Munos, Danihelka, Lanctot, Graves 2016.
#include "ebb/core/units.h"
#include "ebb/view/bench_data.h"
#include "ebb/view/bench_plot.h"
#include "ebb/view/bench_values.h"

namespace ebb {
namespace {

constexpr BenchColumn kGruslysColumns[] = {
    {"time steps", [](const Json& run) { return count_at(run, "/time_steps"); }, false},
    {"budget", budget_of_run, false},
    {"predicted",
     [](const Json& run) { return seconds_at(run, "/predicted/seconds_per_time_step"); }},
    {"measured",
     [](const Json& run) { return seconds_at(run, "/measured/seconds_per_time_step"); }},
    {"predicted", [](const Json& run) { return ratio_at(run, "/predicted/ratio"); }},
    {"measured", [](const Json& run) { return ratio_at(run, "/measured/ratio"); }},
    {"spread", [](const Json& run) { return percent_at(run, "/spread"); }},
    {"chunk", [](const Json& run) { return count_at(run, "/chunk"); }},
    {"forwards", forwards_of_run},
    {"memory", [](const Json& run) { return bytes_at(run, "/measured/peak/fast"); }}};

// In budgets that are parts of plain memory a line each.
std::string line_of(const Json& run) {
  const Json percent = number_at(run, "/percent");
  const bool limited = !percent.is_null() && run.at("strategy") != "store_all";
  return limited ? run_name(run) + " in " + percent.dump() + " %" : run_name(run);
}

// Null where nothing was kept.
Json share_of(const Json& run, const Json& plain) {
  const Json peak = number_at(run, "/measured/peak/fast");
  if (peak.is_null()) {
    const Json percent = number_at(run, "/percent");
    return percent.is_null() ? Json() : Json(percent.get<double>() / 100);
  }
  return peak.get<double>() / plain.get<double>();
}

// The paper's: a third more time in 5 % of the memory.
void add_goal(const Json& json, BenchPlot& plot, BenchPage& page) {
  const Json goal = number_at(json, "/goal/ratio"), percent = number_at(json, "/goal/percent");
  if (goal.is_null()) return;
  plot.add_level("a third more time", goal);
  for (const Json& run : json.at("series").at("memory")) {
    if (!run_fits(run) || percent.is_null() || number_at(run, "/percent") != percent) continue;
    if (number_at(run, "/measured/ratio").is_null()) continue;
    const Verdict verdict = verdict_of(run, goal);
    page.add("Goal: at most " + ratio_at(json, "/goal/ratio") + " in " + percent.dump() + " %",
             verdict_words(run, verdict));
    if (verdict == Verdict::missed) {
      page.remarks.push_back("The paper's goal, a third more time in " + percent.dump() +
                             " % of the memory, is missed: " + ratio_at(run, "/measured/ratio") +
                             ".");
    }
  }
}

}  // namespace

BenchPage gruslys_page(const Json& json) {
  BenchPage page;
  const bool is_device = json.contains("device");
  const std::string steps = count_at(json, is_device ? "/steps" : "/time_steps");
  const char* const plain_key = is_device ? "/plain" : "/plain_bytes";
  page.title = "A small part of the memory: " + count_at(json, "/hidden") + " units, " + steps +
               " time steps" + device_words(json);
  add_settings(json, page);
  page.add("Net", net_words(json, "lstm"));
  page.add("Keeping everything",
           bytes_at(json, plain_key) + " for " + steps + " time steps: 100 % of memory");
  const Json& series = json.at("series");
  BenchStyles styles;
  BenchPlot memory("Time against memory",
                   "Over " + steps +
                       " time steps: times what store_all takes, against the share of "
                       "all tapes' bytes that a run held.",
                   {"share of all tapes' bytes", "%"}, {"of store_all", "x"}, "ratio");
  const Json plain = json.at(Json::json_pointer(plain_key));
  for (const Json& run : series.at("memory")) memory.add(run_name(run), share_of(run, plain), run);
  add_goal(json, memory, page);
  page.parts.push_back(memory.json(styles));
  const Json chunk = number_at(json, "/chunk");
  Json runs = Json::array();
  append_runs("memory", series.at("memory"), chunk, runs);
  if (series.contains("steps") && !series.at("steps").empty()) {
    BenchPlot lengths(
        "Time of a time step against the length",
        "Budgets stay as they are: percents of what store_all keeps of " + steps + " time steps.",
        {"time steps", ""}, {"time", "s"}, "seconds_per_time_step");
    for (const Json& run : series.at("steps")) {
      lengths.add(line_of(run), number_at(run, "/time_steps"), run);
    }
    page.parts.push_back(lengths.json(styles));
    append_runs("length", series.at("steps"), chunk, runs);
  }
  add_verdicts(runs, page);
  page.parts.push_back(run_table("All runs",
                                 "Seconds of a time step, and times those of store_all; forwards: "
                                 "how often a step ran forward on average.",
                                 kGruslysColumns, runs));
  return page;
}

}  // namespace ebb
