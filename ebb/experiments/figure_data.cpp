// SPDX-License-Identifier: Apache-2.0
#include "ebb/experiments/figure_data.h"

#include <ostream>
#include <string>
#include <utility>

namespace ebb {
namespace {

std::int64_t sum_of(const Json& value) {
  if (!value.is_object()) return value.get<std::int64_t>();
  std::int64_t sum = 0;
  for (const Json& part : value) sum += sum_of(part);
  return sum;
}

std::string field_of(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object()) return std::to_string(sum_of(value));
  return value.dump();
}

}  // namespace

Json found_json(Json head, const Prediction& found, const Platform& platform) {
  Json peak = {{"fast", found.peak[0]}}, moved = Json::object();
  for (std::size_t k = 0; k < platform.tiers.size(); ++k) {
    peak[platform.tiers[k].name] = found.peak[k + 1];
    moved[platform.tiers[k].name] = {{"written", found.moved[k].written},
                                     {"read", found.moved[k].read}};
  }
  head["stall_seconds"] = found.stall_seconds;
  head["forwards"] = found.forwards;
  head["peak"] = std::move(peak);
  head["moved"] = std::move(moved);
  return head;
}

void write_csv(std::span<const CsvColumn> columns, const Json& points, std::ostream& out) {
  const auto write_line = [&](const auto& field) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      out << (i == 0 ? "" : ",") << field(columns[i]);
    }
    out << '\n';
  };
  write_line([](const CsvColumn& column) { return column.name; });
  for (const Json& point : points) {
    write_line([&point](const CsvColumn& column) {
      const Json::json_pointer path(column.path);
      return point.contains(path) ? field_of(point.at(path)) : std::string();
    });
  }
}

void append_series(const char* series, Json points, Json& all) {
  for (Json& point : points) {
    point["series"] = series;
    all.push_back(std::move(point));
  }
}

}  // namespace ebb
