// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "ebb/core/error.h"
#include "ebb/view/run_data.h"

namespace ebb {
namespace {

// A value of the report, or null. C++ writes {"seconds":{"predicted":…,"measured":…}}, Python
// {"predicted":{"seconds":…},"measured":{"seconds":…}}.
Json value_at(const Json& json, std::initializer_list<const char*> path) {
  const Json* at = &json;
  for (const char* key : path) {
    if (!at->is_object() || !at->contains(key)) return nullptr;
    at = &(*at)[key];
  }
  return at->is_number() ? *at : Json(nullptr);
}

Json element(const Json& array, std::size_t i) {
  return array.is_array() && i < array.size() && array[i].is_number() ? array[i] : Json(nullptr);
}

Json member(const Json& object, const std::string& key) {
  return object.is_object() && object.contains(key) ? object[key] : Json(nullptr);
}

struct Rows {
  Json json = Json::array();
  void add(const std::string& what, const char* unit, const Json& predicted, const Json& measured) {
    if (predicted.is_null() && measured.is_null()) return;
    json.push_back(
        {{"what", what}, {"unit", unit}, {"predicted", predicted}, {"measured", measured}});
  }
};

Json rows_of_library(const Json& report) {
  Rows rows;
  const auto pair = [&](const std::string& what, const char* unit, const char* key) {
    rows.add(what, unit, value_at(report, {key, "predicted"}), value_at(report, {key, "measured"}));
  };
  pair("Time", "s", "seconds");
  pair("Waiting for transfers", "s", "stall_seconds");
  pair("Forward steps", "", "forwards");
  pair("Forward steps that keep nothing", "", "advances");
  pair("Forward steps that leave tapes", "", "records");
  const Json& peak = member(report, "peak");
  for (const auto& [place, both] : peak.items()) {
    rows.add("Peak in " + place, "B", value_at(both, {"predicted"}), value_at(both, {"measured"}));
  }
  const Json& moved = member(report, "moved");
  for (const auto& [tier, both] : moved.items()) {
    for (const char* way : {"written", "read"}) {
      rows.add(way + std::string(way == std::string("written") ? " to " : " from ") + tier, "B",
               value_at(both, {"predicted", way}), value_at(both, {way, "bytes"}));
    }
  }
  return rows.json;
}

Json rows_of_package(const Json& report) {
  Rows rows;
  const Json& predicted = report["predicted"];
  const Json measured = member(report, "measured");
  const auto pair = [&](const std::string& what, const char* unit, const char* key) {
    rows.add(what, unit, value_at(predicted, {key}), value_at(measured, {key}));
  };
  pair("Time", "s", "seconds");
  pair("Waiting for transfers", "s", "stall_seconds");
  pair("Forward steps", "", "forwards");
  const Json peak = member(predicted, "peak"), charged = member(measured, "charged");
  for (const auto& [place, ignored] : peak.items()) {
    rows.add("Peak in " + place, "B", value_at(peak, {place.c_str()}),
             value_at(charged, {place.c_str()}));
  }
  const Json before = member(predicted, "moved"), after = member(measured, "moved");
  for (const auto& [tier, both] : before.items()) {
    for (const std::size_t way : {0, 1}) {
      rows.add((way == 0 ? "written to " : "read from ") + tier, "B", element(both, way),
               element(member(after, tier), way));
    }
  }
  return rows.json;
}

}  // namespace

bool is_report(const Json& json) {
  if (!json.is_object() || !json.contains("strategy")) return false;
  const bool library = json.contains("seconds") && json["seconds"].is_object();
  const bool package = json.contains("predicted") && json["predicted"].is_object();
  return library || package;
}

Json report_data(const std::vector<Json>& reports, std::string_view name) {
  Json list = Json::array();
  for (const Json& report : reports) {
    const bool library = report.contains("seconds");
    Json budget = value_at(report, {"budget"});
    if (budget.is_number_integer() && budget.get<std::int64_t>() == kUnlimited) budget = nullptr;
    const Json exact = member(report, "exact");
    Json remarks = Json::array();
    for (const Json& remark : member(report, "remarks")) {
      if (remark.is_string()) remarks.push_back(remark);
    }
    list.push_back({{"strategy", report["strategy"].is_string() ? report["strategy"] : Json("?")},
                    {"steps", value_at(report, {"steps"})},
                    {"exact", exact.is_boolean() ? exact : Json(nullptr)},
                    {"budget", budget},
                    {"rows", library ? rows_of_library(report) : rows_of_package(report)},
                    {"remarks", remarks}});
  }
  return {{"title", titled("Predicted and measured", name)}, {"reports", list}};
}

}  // namespace ebb
