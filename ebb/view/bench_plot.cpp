// SPDX-License-Identifier: Apache-2.0
#include "ebb/view/bench_plot.h"

#include <algorithm>

#include "ebb/core/units.h"
#include "ebb/view/bench_values.h"

namespace ebb {
namespace {

std::string place_text(const Json& x, std::string_view unit) {
  const auto value = x.get<double>();
  return unit == "%"   ? format_percent(value)
         : unit == "s" ? format_seconds(value)
                       : format_number(value);
}

std::string sentence_after(const std::string& about, const std::string& sentence) {
  return about.empty() || sentence.empty() ? about + sentence : about + " " + sentence;
}

}  // namespace

std::size_t BenchStyles::of(const std::string& line) {
  const auto found = std::ranges::find(lines_, line);
  const auto index = static_cast<std::size_t>(found - lines_.begin());
  if (found == lines_.end()) lines_.push_back(line);
  return index;
}

Json& BenchPlot::points_of(const std::string& line) {
  for (auto& [name, points] : lines_) {
    if (name == line) return points;
  }
  return lines_.emplace_back(line, Json::array()).second;
}

void BenchPlot::add(const std::string& line, const Json& x, const Json& run) {
  Json& points = points_of(line);
  if (!run_fits(run)) {
    unfit_[line].push_back(x);
    return;
  }
  std::string note = run_choice(run);
  const std::string peak = bytes_at(run, "/measured/peak/fast");
  if (peak != "-") note += (note.empty() ? "" : ", ") + peak + " of fast memory";
  points.push_back({{"x", x},
                    {"predicted", number_at(run, "/predicted/" + value_)},
                    {"measured", number_at(run, "/measured/" + value_)},
                    {"note", note}});
}

void BenchPlot::add_predicted(const std::string& line, const Json& x, const Json& predicted) {
  Json& points = points_of(line);
  if (!predicted.is_number()) {
    unfit_[line].push_back(x);
    return;
  }
  points.push_back({{"x", x}, {"predicted", predicted}, {"measured", nullptr}, {"note", ""}});
}

void BenchPlot::add_level(const std::string& name, const Json& y) {
  if (y.is_number()) levels_.push_back({{"name", name}, {"y", y}});
}

// "store_all does not fit. revolve does not fit at 500, 1000 (steps)."
std::string BenchPlot::left_out() const {
  std::string text;
  for (const auto& [line, points] : lines_) {
    const auto found = unfit_.find(line);
    if (found == unfit_.end()) continue;
    std::string places;
    for (const Json& x : found->second) {
      if (x.is_number()) places += (places.empty() ? "" : ", ") + place_text(x, x_.unit);
    }
    const bool never = points.empty() || places.empty();
    text.append(text.empty() ? "" : " ").append(line).append(" does not fit");
    text += never ? "." : " at " + places + " (" + x_.label + ").";
  }
  return text;
}

Json BenchPlot::json(BenchStyles& styles) const {
  Json lines = Json::array();
  for (const auto& [name, points] : lines_) {
    const std::size_t style = styles.of(name);
    if (!points.empty()) lines.push_back({{"name", name}, {"style", style}, {"points", points}});
  }
  const auto axis = [](BenchAxis of) { return Json{{"label", of.label}, {"unit", of.unit}}; };
  const Json plot = {{"title", title_}, {"about", sentence_after(about_, left_out())},
                     {"x", axis(x_)},   {"y", axis(y_)},
                     {"lines", lines},  {"levels", levels_}};
  return {{"plots", Json::array({plot})}};
}

Json ratio_bars(const std::string& title, std::string about, const Json& runs) {
  Json rows = Json::array();
  for (const Json& run : runs) {
    if (!run_fits(run)) {
      about = sentence_after(about, run_name(run) + ": " + unfit_words(run) + ".");
      continue;
    }
    const std::string choice = run_choice(run);
    rows.push_back({{"what", run_name(run) + (choice.empty() ? "" : ", " + choice)},
                    {"unit", "x"},
                    {"predicted", number_at(run, "/predicted/ratio")},
                    {"measured", number_at(run, "/measured/ratio")}});
  }
  return {{"bars",
           {{"title", title},
            {"about", about},
            {"words", {"predicted", "measured"}},
            {"shared", true},
            {"rows", rows}}}};
}

namespace {

// What no run has a value for is no column.
void leave_out_empty_columns(Json& head, Json& rows) {
  for (std::size_t column = head.size(); column-- > 0;) {
    const bool used = std::ranges::any_of(
        rows, [&](const Json& row) { return row[column] != "-" && row[column] != ""; });
    if (used) continue;
    head.erase(column);
    for (Json& row : rows) row.erase(column);
  }
}

}  // namespace

Json run_table(const std::string& title, const std::string& about,
               std::span<const BenchColumn> columns, const Json& runs) {
  Json head = {"series", "strategy"}, rows = Json::array();
  for (const BenchColumn& column : columns) head.push_back(column.title);
  for (const Json& run : runs) {
    const bool fits = run_fits(run);
    const std::string choice = run_choice(run);
    Json& row = rows.emplace_back(
        Json{run.at("series"), run_name(run) + (choice.empty() ? "" : ", " + choice)});
    bool said = fits;
    for (const BenchColumn& column : columns) {
      const bool shown = fits || !column.is_result;
      row.push_back(shown ? column.text(run) : said ? "" : unfit_words(run));
      said = said || !shown;
    }
  }
  leave_out_empty_columns(head, rows);
  const Json table = {{"title", title}, {"about", about}, {"head", head}, {"rows", rows}};
  return {{"tables", Json::array({table})}};
}

void append_runs(const std::string& series, const Json& runs, const Json& chunk, Json& all) {
  for (Json run : runs) {
    run["series"] = series;
    if (!run.contains("chunk")) run["chunk"] = chunk;
    all.push_back(std::move(run));
  }
}

}  // namespace ebb
