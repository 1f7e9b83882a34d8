// SPDX-License-Identifier: Apache-2.0
#include "ebb/experiments/trials_text.h"

#include <cmath>
#include <iterator>

namespace ebb {
namespace {

Json json_of(const Prediction& found, double ratio, std::int64_t time_steps,
             const Platform& platform) {
  return found_json({{"seconds_per_time_step", found.seconds / static_cast<double>(time_steps)},
                     {"seconds", found.seconds},
                     {"ratio", ratio}},
                    found, platform);
}

}  // namespace

std::string format_ratio(double ratio) {
  if (!std::isfinite(ratio)) return "-";
  const std::int64_t thousandths = std::llround(ratio * 1000);
  const std::string rest = std::to_string(1000 + thousandths % 1000).substr(1);
  return std::to_string(thousandths / 1000) + "." + rest + "x";
}

std::string format_spread(double spread) {
  return spread < 10 ? format_percent(std::round(1000 * spread) / 1000) : "> 999 %";
}

std::string spread_words(double spread) {
  return "a row's slowest run took up to " + format_spread(spread) + " longer than its best";
}

std::string missed_words(const Trial& trial, double goal) {
  return trial.measured_ratio <= goal ? "" : " (> " + format_ratio(goal) + ")";
}

bool is_undecided(const Trial& trial, double goal) {
  return trial.measured_ratio > goal && trial.least_ratio <= goal;
}

std::string undecided_words(const Trial& trial) {
  return "undecided: from " + format_ratio(trial.least_ratio) + " to " +
         format_ratio(trial.greatest_ratio) + " in single runs, side by side";
}

std::string does_not_fit(const Trial& trial) {
  if (!trial.least_budget) return "does not fit";
  return "does not fit (least " + format_bytes(*trial.least_budget) + ")";
}

Json trial_json(const Trial& trial, std::int64_t time_steps, const Platform& platform) {
  Json json = {{"strategy", trial.strategy},
               {"time_steps", time_steps},
               {"budget", trial.budget == kUnlimited ? Json() : Json(trial.budget)},
               {"sync", trial.sync},
               {"fits", trial.fits}};
  if (!trial.fits) {
    json["least_budget"] = trial.least_budget ? Json(*trial.least_budget) : Json();
    return json;
  }
  json["chosen"] = trial.chosen;
  Json& parameters = json["parameters"] = Json::object();
  for (const auto& [name, value] : trial.parameters) parameters[name] = value;
  json["predicted"] = json_of(trial.predicted, trial.predicted_ratio, time_steps, platform);
  json["measured"] = json_of(trial.measured, trial.measured_ratio, time_steps, platform);
  json["spread"] = trial.spread();
  json["measured"]["least_ratio"] = trial.least_ratio;
  json["measured"]["greatest_ratio"] = trial.greatest_ratio;
  json["exact"] = trial.exact;
  json["same_gradient"] = trial.same_gradient;
  return json;
}

std::vector<CsvColumn> trial_columns(std::vector<CsvColumn> first) {
  constexpr CsvColumn own[] = {
      {"strategy", "/strategy"},
      {"time_steps", "/time_steps"},
      {"budget", "/budget"},
      {"sync", "/sync"},
      {"chosen", "/chosen"},
      {"predicted_seconds_per_time_step", "/predicted/seconds_per_time_step"},
      {"measured_seconds_per_time_step", "/measured/seconds_per_time_step"},
      {"predicted_ratio", "/predicted/ratio"},
      {"measured_ratio", "/measured/ratio"},
      {"spread", "/spread"},
      {"forwards", "/measured/forwards"},
      {"peak", "/measured/peak/fast"},
      {"moved", "/measured/moved"},
      {"same_gradient", "/same_gradient"}};
  first.insert(first.end(), std::begin(own), std::end(own));
  return first;
}

}  // namespace ebb
