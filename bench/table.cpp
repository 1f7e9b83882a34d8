// SPDX-License-Identifier: Apache-2.0
#include "bench/table.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace ebb::bench {
namespace {

std::string cell_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_integer()) return std::to_string(value.get<std::int64_t>());
  if (value.is_number()) return number_text(value.get<double>());
  return value.is_null() ? "-" : value.dump();
}

std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

}  // namespace

std::string number_text(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", value);
  return text.data();
}

std::string goal(bool met, const std::string& asked) {
  return (met ? "met: " : "missed: ") + asked;
}

std::string Table::text() const {
  if (rows_.empty()) return {};
  struct Column {
    std::string head;
    bool number = false;
    std::size_t width = 0;
  };
  std::vector<Column> columns;
  for (const auto& [key, value] : rows_.front().items())
    columns.push_back({key, false, width(key)});
  for (const Json& row : rows_) {
    for (Column& column : columns) {
      const Json value = row.value(column.head, Json());
      column.number = column.number || value.is_number();
      column.width = std::max(column.width, width(cell_text(value)));
    }
  }
  std::string out = "### " + title_ + "\n\n";
  const auto put = [&out](const Column& column, const std::string& text) {
    const std::string pad(column.width - width(text), ' ');
    out += "| " + (column.number ? pad + text : text + pad) + " ";
  };
  for (const Column& column : columns) put(column, column.head);
  out += "|\n";
  for (const Column& column : columns) {
    out += "|" + std::string(column.width + 1, '-') + (column.number ? ":" : "-");
  }
  out += "|\n";
  for (const Json& row : rows_) {
    for (const Column& column : columns) put(column, cell_text(row.value(column.head, Json())));
    out += "|\n";
  }
  return out + "\n";
}

Json Table::json() const { return {{"title", title_}, {"rows", rows_}}; }

int Table::count(const std::string& verdict) const {
  return static_cast<int>(std::count_if(rows_.begin(), rows_.end(), [&](const Json& row) {
    return row.contains("goal") && row["goal"].get<std::string>().rfind(verdict, 0) == 0;
  }));
}

}  // namespace ebb::bench
