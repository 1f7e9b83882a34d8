// SPDX-License-Identifier: Apache-2.0
// Charts, bars and tables of what `ebb bench` measured, as data for plot.js and reports.js. Private to the room.
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ebb/core/json.h"

namespace ebb {

// `unit` is one of page/format.js's formats.
struct BenchAxis {
  const char* label;
  const char* unit;
};

// A strategy looks the same in all charts of a page.
class BenchStyles {
 public:
  std::size_t of(const std::string& line);

 private:
  std::vector<std::string> lines_;
};

// A chart of lines. `value` is the key of what it shows in a run's "predicted" and "measured".
class BenchPlot {
 public:
  BenchPlot(std::string title, std::string about, BenchAxis x, BenchAxis y, std::string value)
      : title_(std::move(title)),
        about_(std::move(about)),
        x_(x),
        y_(y),
        value_(std::move(value)) {}

  // A run that does not fit, and one without a place, is named below the title instead.
  void add(const std::string& line, const Json& x, const Json& run);
  // A predicted value alone; null: it does not fit.
  void add_predicted(const std::string& line, const Json& x, const Json& predicted);
  // A line straight across.
  void add_level(const std::string& name, const Json& y);

  // A part of a page.
  Json json(BenchStyles& styles) const;

 private:
  Json& points_of(const std::string& line);
  std::string left_out() const;

  std::string title_, about_;
  BenchAxis x_, y_;
  std::string value_;
  std::vector<std::pair<std::string, Json>> lines_;  // in the order of the file
  std::map<std::string, std::vector<Json>> unfit_;   // where lines have no point
  Json levels_ = Json::array();
};

// Bars of the ratio of each run, predicted beside measured; what does not fit is named. A part of a page.
Json ratio_bars(const std::string& title, std::string about, const Json& runs);

// A column of a table of runs.
struct BenchColumn {
  const char* title;
  std::string (*text)(const Json& run);
  bool is_result = true;  // which a run that does not fit does not have
};

// The runs' "series" is the first column; columns in which no run has a value are left out. A part of a page.
Json run_table(const std::string& title, const std::string& about,
               std::span<const BenchColumn> columns, const Json& runs);

// Appends the runs of a series to those of a table, under a name; `chunk` is that of runs that do not say theirs.
void append_runs(const std::string& series, const Json& runs, const Json& chunk, Json& all);

}  // namespace ebb
