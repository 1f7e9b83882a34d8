// SPDX-License-Identifier: Apache-2.0
#include "ebb/experiments/trials_text.h"

#include <cmath>

namespace ebb {
namespace {

double per_step(const Prediction& found, std::int64_t time_steps) {
  return found.seconds / static_cast<double>(time_steps);
}

Bytes moved(const Prediction& found) {
  Bytes bytes = 0;
  for (const Prediction::Traffic& tier : found.moved) bytes += tier.written + tier.read;
  return bytes;
}

Json found_json(const Prediction& found, double ratio, std::int64_t time_steps,
                const Platform& platform) {
  Json peak = {{"fast", found.peak[0]}}, traffic = Json::object();
  for (std::size_t k = 0; k < platform.tiers.size(); ++k) {
    peak[platform.tiers[k].name] = found.peak[k + 1];
    traffic[platform.tiers[k].name] = {{"written", found.moved[k].written},
                                       {"read", found.moved[k].read}};
  }
  return {{"seconds_per_time_step", per_step(found, time_steps)},
          {"seconds", found.seconds},
          {"ratio", ratio},
          {"stall_seconds", found.stall_seconds},
          {"forwards", found.forwards},
          {"peak", peak},
          {"moved", traffic}};
}

}  // namespace

std::string format_ratio(double ratio) {
  if (!std::isfinite(ratio)) return "-";
  const std::int64_t thousandths = std::llround(ratio * 1000);
  const std::string rest = std::to_string(1000 + thousandths % 1000).substr(1);
  return std::to_string(thousandths / 1000) + "." + rest + "x";
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
  json["predicted"] = found_json(trial.predicted, trial.predicted_ratio, time_steps, platform);
  json["measured"] = found_json(trial.measured, trial.measured_ratio, time_steps, platform);
  json["same_gradient"] = trial.same_gradient;
  return json;
}

std::string csv_number(double value) { return Json(value).dump(); }

const char* const kTrialColumns =
    "strategy,time_steps,budget,sync,chosen,predicted_seconds_per_time_step,"
    "measured_seconds_per_time_step,predicted_ratio,measured_ratio,forwards,peak,moved,"
    "same_gradient";

std::string trial_csv(const Trial& trial, std::int64_t time_steps) {
  const std::string budget = trial.budget == kUnlimited ? "" : std::to_string(trial.budget);
  const std::string asked = trial.strategy + "," + std::to_string(time_steps) + "," + budget + "," +
                            (trial.sync ? "1" : "0") + ",";
  if (!trial.fits) return asked + ",,,,,,,,";
  return asked + trial.chosen + "," + csv_number(per_step(trial.predicted, time_steps)) + "," +
         csv_number(per_step(trial.measured, time_steps)) + "," +
         csv_number(trial.predicted_ratio) + "," + csv_number(trial.measured_ratio) + "," +
         std::to_string(trial.measured.forwards) + "," + std::to_string(trial.measured.peak[0]) +
         "," + std::to_string(moved(trial.measured)) + "," + (trial.same_gradient ? "1" : "0");
}

}  // namespace ebb
