// SPDX-License-Identifier: Apache-2.0
#include <ostream>
#include <span>
#include <utility>

#include "ebb/experiments/double_text.h"
#include "ebb/experiments/trials_text.h"
#include "ebb/plan/text.h"

namespace ebb {
namespace {

Json points_json(std::span<const DoublePoint> points, const Platform& platform) {
  Json all = Json::array();
  for (const DoublePoint& point : points) {
    Json& json = all.emplace_back(trial_json(point.trial, point.time_steps, platform));
    json["hidden"] = point.hidden;
    json["parameters"] = point.parameters;
    json["rate"] = point.rate;
    json["activity"] = point.activity;
    if (point.most > 0) json["most"] = point.most == kUnlimited ? Json() : Json(point.most);
    json["plain_seconds_per_time_step"] = point.plain_seconds;
  }
  return all;
}

Json bandwidth_json(std::span<const BandwidthPoint> points) {
  Json all = Json::array();
  for (const BandwidthPoint& point : points) {
    Json ratios = Json::object();
    for (const auto& [strategy, ratio] : point.ratios) {
      ratios[strategy] = ratio ? Json(*ratio) : Json();
    }
    all.push_back({{"factor", point.factor}, {"predicted_ratio", ratios}});
  }
  return all;
}

Json arrangement_json(const DoubleArrangement& found) {
  const Platform& platform = found.platform;
  return {{"platform", Json::parse(to_json(platform))},
          {"within_1.1x", {{"times_plain", found.furthest}, {"searched", found.searched}}},
          {"series",
           {{"longest", points_json(found.longest, platform)},
            {"length", points_json(found.by_length, platform)},
            {"largest", points_json(found.largest, platform)},
            {"activity", points_json(found.by_activity, platform)},
            {"bandwidth", bandwidth_json(found.by_bandwidth)}}}};
}

// What the lines of CSV say of one arrangement.
Json rows_json(const DoubleArrangement& found) {
  Json rows = Json::array();
  append_series("longest", points_json(found.longest, found.platform), rows);
  append_series("length", points_json(found.by_length, found.platform), rows);
  append_series("largest", points_json(found.largest, found.platform), rows);
  append_series("activity", points_json(found.by_activity, found.platform), rows);
  for (const BandwidthPoint& point : found.by_bandwidth) {
    const std::string series = "bandwidth " + Json(point.factor).dump();
    for (const auto& [strategy, ratio] : point.ratios) {
      rows.push_back({{"series", series},
                      {"strategy", strategy},
                      {"predicted", {{"ratio", ratio ? Json(*ratio) : Json()}}}});
    }
  }
  return rows;
}

}  // namespace

std::string double_json(const DoubleSetup& setup, const DoubleResults& results) {
  Json arrangements = Json::array();
  for (const DoubleArrangement& found : results.arrangements) {
    arrangements.push_back(arrangement_json(found));
  }
  const Json json = {{"experiment", "double"},
                     {"paper", "Bencheikh, Finkbeiner, Neftci 2024"},
                     {"input", setup.input},
                     {"hidden", setup.hidden},
                     {"batch", setup.batch},
                     {"density", setup.density},
                     {"chunk", setup.chunk},
                     {"grain", setup.chunk},  // its earlier name
                     {"budget", setup.budget},
                     {"repeat", setup.repeat},
                     {"parameters", results.parameters},
                     {"activity", results.activity},
                     {"plain_time_steps", results.plain_steps},
                     {"paper_ratio", results.paper_ratio()},
                     {"goal", {{"ratio", kMarginal}}},
                     {"chain", Json::parse(to_json(results.chain))},
                     {"arrangements", arrangements}};
  return json.dump();
}

void write_double_csv(const DoubleResults& results, std::ostream& out) {
  Json rows = Json::array();
  for (const DoubleArrangement& found : results.arrangements) {
    for (Json& row : rows_json(found)) {
      row["tier"] = found.platform.tiers.front().name;
      rows.push_back(std::move(row));
    }
  }
  write_csv(trial_columns({{"tier", "/tier"},
                           {"series", "/series"},
                           {"hidden", "/hidden"},
                           {"rate", "/rate"},
                           {"activity", "/activity"},
                           {"most", "/most"}}),
            rows, out);
}

}  // namespace ebb
