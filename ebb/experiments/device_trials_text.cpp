// SPDX-License-Identifier: Apache-2.0
#include "ebb/experiments/device_trials_text.h"

#include <algorithm>
#include <cmath>
#include <ostream>
#include <utility>

#include "ebb/core/layout.h"
#include "ebb/core/units.h"
#include "ebb/experiments/trials_text.h"

namespace ebb {
namespace {

Platform tiers_of(const Prediction& found) {
  Platform platform;
  if (found.peak.size() > 1) platform.tiers.emplace_back().name = "host";
  return platform;
}

Json json_of(const DeviceTrial& trial) {
  Json json = trial_json(trial.trial, trial.time_steps, tiers_of(trial.trial.predicted));
  json["hidden"] = trial.hidden;
  json["host_budget"] = trial.host_budget;
  json["chunk"] = trial.chunk;
  if (trial.percent) json["percent"] = *trial.percent;
  if (trial.most) {
    json["most"] = *trial.most;
    json["more_may_fit"] = trial.more_may_fit;
  }
  if (trial.trial.fits) {
    json["pinned"] = trial.pinned;
    if (!trial.compared) json["same_gradient"] = Json();
  } else {
    json["too_large"] = trial.too_large;
  }
  return json;
}

}  // namespace

std::string strategy_words(const DeviceTrial& trial) {
  if (trial.trial.strategy == "store_all") return "plain";
  if (trial.trial.strategy != "auto" || !trial.trial.fits) return trial.trial.strategy;
  return "auto: " + trial.trial.chosen;
}

std::string unfit_words(const DeviceTrial& trial) {
  return trial.too_large ? "more than the device has" : does_not_fit(trial.trial);
}

std::string forwards_words(const DeviceTrial& trial) {
  const std::int64_t steps = (trial.time_steps + trial.chunk - 1) / trial.chunk;
  const auto forwards = static_cast<double>(trial.trial.measured.forwards);
  return format_number(std::round(1000 * forwards / static_cast<double>(steps)) / 1000);
}

std::string moved_words(const DeviceTrial& trial) {
  Bytes bytes = 0;
  for (const Prediction::Traffic& tier : trial.trial.measured.moved) {
    bytes += tier.written + tier.read;
  }
  const Bytes each = bytes / trial.time_steps;
  return format_bytes(each < 10_KiB ? each : each / 1_KiB * 1_KiB);
}

void add_costs(const DeviceTrial& trial, std::vector<std::string>& row) {
  if (!trial.trial.fits) {
    row.push_back(unfit_words(trial));
    return;
  }
  row.insert(row.end(),
             {std::to_string(trial.chunk), format_ratio(trial.trial.predicted_ratio),
              format_ratio(trial.trial.measured_ratio), forwards_words(trial), moved_words(trial)});
}

std::vector<std::string> cost_titles(std::vector<std::string> first) {
  first.insert(first.end(), {"chunk", "predicted", "measured", "forwards", "moved"});
  return first;
}

void write_measured(int repeat, std::ostream& out) {
  Lines lines(out);
  lines.add("predicted", "from sizes, by figures of an H200");
  lines.add("measured",
            "forward and backward by the device's clock, the best of " + std::to_string(repeat));
  lines.add("measured", "after one to warm up. moved: bytes of a time step, both ways");
}

void write_verdicts(std::span<const DeviceTrial> trials, std::ostream& out) {
  Lines lines(out);
  double spread = 0;
  for (const DeviceTrial& trial : trials) {
    if (trial.trial.fits) spread = std::max(spread, trial.trial.spread());
  }
  lines.add("spread", spread_words(spread));
  const bool pinned = std::ranges::all_of(trials, &DeviceTrial::pinned);
  if (!pinned) lines.add("transfers", "slow: the system gave no pinned memory");
  const bool same = std::ranges::all_of(trials, [](const DeviceTrial& trial) {
    return !trial.trial.fits || !trial.compared || trial.trial.same_gradient;
  });
  lines.add("gradients", same ? "the same bits as plain's with the same chunk, in every run"
                              : "NOT the same bits as plain's with the same chunk");
  const auto uncompared = std::ranges::count_if(
      trials, [](const DeviceTrial& trial) { return trial.trial.fits && !trial.compared; });
  if (uncompared > 0) {
    lines.add("gradients", "not compared in " + std::to_string(uncompared) +
                               " of them: no room on the device for plain's");
  }
}

std::string device_json(Json head, std::span<const DeviceTrial> trials) {
  Json& series = head["series"] = Json::object();
  for (const DeviceTrial& trial : trials) {
    Json& own = series[trial.series];
    if (own.is_null()) own = Json::array();
    own.push_back(json_of(trial));
  }
  return head.dump();
}

void write_device_csv(std::span<const DeviceTrial> trials, std::ostream& out) {
  Json rows = Json::array();
  for (const DeviceTrial& trial : trials) {
    Json& row = rows.emplace_back(json_of(trial));
    row["series"] = trial.series;
  }
  write_csv(trial_columns({{"series", "/series"},
                           {"hidden", "/hidden"},
                           {"host_budget", "/host_budget"},
                           {"chunk", "/chunk"},
                           {"percent", "/percent"},
                           {"most", "/most"}}),
            rows, out);
}

}  // namespace ebb
