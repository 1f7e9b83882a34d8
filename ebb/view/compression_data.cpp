// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "ebb/core/bytes.h"
#include "ebb/core/error.h"
#include "ebb/core/units.h"
#include "ebb/view/run_data.h"

namespace ebb {
namespace {

Bytes bytes_in(const Json& row, const char* key) {
  const Json& value = row.at(key);
  return value.is_number_integer() ? std::max<Bytes>(value.get<Bytes>(), 0) : 0;
}

std::string ratio_text(const Json& row) {
  const double before = row.at("stock_seconds").get<double>();
  return before > 0 ? format_number(row.at("seconds").get<double>() / before) : "-";
}

std::string number_text(const Json& value) {
  return value.is_number() ? format_number(value.get<double>()) : "-";
}

std::string name_of(const Json& row) {
  const auto name = row.at("layer").get<std::string>();
  return name.empty() ? "(model)" : name;
}

}  // namespace

bool is_compression(const Json& json) {
  return json.is_object() && json.contains("rows") && json["rows"].is_array() &&
         json.contains("totals") && json["totals"].is_object() &&
         json["totals"].contains("stock_kept");
}

Json compression_data(const Json& json, std::string_view name) {
  const Json& whole = json["totals"];
  Json layers = Json::array(), cells = Json::array();
  for (const Json& row : json["rows"]) {
    const Bytes before = bytes_in(row, "stock_kept"), now = bytes_in(row, "kept"),
                moved = bytes_in(row, "moved");
    if (before > 0 || now > 0) {
      layers.push_back({{"what", name_of(row) + ", " + row.at("kind").get<std::string>()},
                        {"unit", "B"},
                        {"predicted", before},
                        {"measured", now}});
    }
    cells.push_back({name_of(row), row.at("kind").get<std::string>(),
                     row.at("way").get<std::string>(), format_bytes(before), format_bytes(now),
                     moved > 0 ? format_bytes(moved) : "-", ratio_text(row),
                     number_text(row.at("cosine")), number_text(row.at("error"))});
  }
  Json figures = Json::array();
  const auto add = [&](const char* label, const char* before, const char* now) {
    figures.push_back({label, format_bytes(bytes_in(whole, now)) + ", " +
                                  format_bytes(bytes_in(whole, before)) + " before"});
  };
  add("Kept for backward", "stock_kept", "kept");
  add("Peak", "stock_peak", "peak");
  figures.push_back({"Time of a step", ratio_text(whole) + " x that before"});
  return {{"title", titled("What layers keep", name)},
          {"figures", figures},
          {"bars",
           {{"title", "Layer by layer"},
            {"about",
             "Bytes that each layer keeps between forward and backward, before and after "
             "ebb.compress."},
            {"words", {"before", "now"}},
            {"shared", true},
            {"rows", layers}}},
          {"tables", Json::array({{{"title", "All figures"},
                                   {"about",
                                    "Time: of forward and backward, compared with the layer "
                                    "before. Cosine and error compare the weight gradient "
                                    "with that of the model before."},
                                   {"head",
                                    {"layer", "kind", "way", "kept before", "kept", "moved", "time",
                                     "cosine", "error"}},
                                   {"rows", cells}}})}};
}

}  // namespace ebb
