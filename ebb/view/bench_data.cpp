// SPDX-License-Identifier: Apache-2.0
#include "ebb/view/bench_data.h"

#include <algorithm>
#include <cmath>

#include "ebb/core/error.h"
#include "ebb/core/units.h"
#include "ebb/plan/text.h"
#include "ebb/view/bench_values.h"
#include "ebb/view/run_data.h"

namespace ebb {
namespace {

void add_step(const Json& json, BenchPage& page) {
  const Chain chain = chain_from_json(json.at("chain").dump());
  if (chain.steps() < 1) return;
  const StepCost& step = chain.at(0);
  const Json chunk = number_at(json, "/chunk");
  const std::string times = "forward " + format_seconds(step.forward) + ", record " +
                            format_seconds(step.record) + ", backward " +
                            format_seconds(step.backward);
  page.add("A step", chunk.is_null() ? times : chunk.dump() + " time steps: " + times);
  page.add("Bytes of a step",
           "state " + format_bytes(step.state) + ", tape " + format_bytes(step.tape));
}

}  // namespace

void add_settings(const Json& json, BenchPage& page) {
  page.add("Paper", json.at("paper").get<std::string>());
  if (json.contains("device")) page.add("Device", json.at("device").get<std::string>());
  if (json.contains("chain")) add_step(json, page);
  const std::string runs = count_at(json, "/repeat");
  page.add("Measured", runs == "1" ? "one run" : "the best of " + runs + " runs");
}

std::string net_words(const Json& json, const std::string& cell) {
  std::string text =
      cell + ", " + count_at(json, "/input") + " inputs, " + count_at(json, "/hidden") + " units, ";
  if (json.contains("number")) text += json.at("number").get<std::string>() + ", ";
  return text + "batch " + count_at(json, "/batch") + ", " + count_at(json, "/parameters") +
         " parameters";
}

std::string device_words(const Json& json) {
  return json.contains("device") ? " on " + json.at("device").get<std::string>() : "";
}

void add_verdicts(const Json& runs, BenchPage& page) {
  double spread = 0;
  bool exact = true, same = true;
  std::int64_t uncompared = 0;
  for (const Json& run : runs) {
    if (!run_fits(run)) continue;
    const Json own = number_at(run, "/spread");
    if (!own.is_null()) spread = std::max(spread, own.get<double>());
    exact = exact && run.value("exact", true);
    const Json& compared = run.at("same_gradient");
    uncompared += compared.is_null() ? 1 : 0;
    same = same && (compared.is_null() || compared.get<bool>());
  }
  page.add("Spread", "the slowest run of a row took up to " +
                         format_percent(std::round(1000 * spread) / 1000) +
                         " longer than its best");
  std::string gradients = same ? "the same bits whatever the strategy" : "NOT the same bits";
  if (uncompared > 0) {
    gradients +=
        "; no room to compare " + std::to_string(uncompared) + (uncompared == 1 ? " run" : " runs");
  }
  page.add("Gradients", gradients);
  if (!same) page.remarks.push_back("Some runs have gradients with other bits.");
  if (!exact) page.remarks.push_back("Gradients are NOT EXACT: a tier keeps nothing.");
}

bool is_bench(const Json& json) { return json.is_object() && json.contains("experiment"); }

Json bench_data(const Json& json, std::string_view name) {
  const Json& experiment = json.at("experiment");
  BenchPage page;
  if (experiment == "async") {
    page = async_page(json);
  } else if (experiment == "gruslys") {
    page = gruslys_page(json);
  } else if (experiment == "double") {
    page = double_page(json);
  } else {
    fail(ErrorCode::invalid_argument, name, ": \"experiment\" is ", experiment.dump(),
         "; pages show those of ebb bench: \"async\", \"gruslys\" and \"double\"");
  }
  Json data = {{"title", page.title}, {"figures", page.figures}, {"parts", page.parts}};
  if (!page.remarks.empty()) data["remarks"] = page.remarks;
  return data;
}

}  // namespace ebb
