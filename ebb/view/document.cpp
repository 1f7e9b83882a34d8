// SPDX-License-Identifier: Apache-2.0
#include "ebb/view/document.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "ebb/core/error.h"
#include "ebb/core/words.h"
#include "ebb/view/page.h"
#include "ebb/view/plan_data.h"
#include "ebb/view/run_data.h"

namespace ebb {
namespace {

constexpr const char* kWhatPagesShow =
    "pages show what ebb plan --json, ebb train --json and ebb bench --json write, reports, "
    "compression reports and traces as JSON, and directories of training runs";

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) fail(ErrorCode::io, "cannot read '", shown(path.string()), "'");
  return text.str();
}

// One object a line. A last line without an end is one that is being written.
std::vector<Json> lines_of(std::string_view text, std::string_view name) {
  std::vector<Json> lines;
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    const bool ends = end != std::string_view::npos;
    text.remove_prefix(ends ? end + 1 : text.size());
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    if (!ends && !Json::accept(line.begin(), line.end())) break;
    lines.push_back(parse_json(line, std::string(name) + ": line " + std::to_string(number)));
  }
  return lines;
}

Json data_of_one(const Json& json, std::string_view name) {
  if (is_trace(json)) return trace_data(json, name);
  if (is_report(json)) return report_data({json}, name);
  if (is_bench(json)) return bench_data(json, name);
  if (is_compression(json)) return compression_data(json, name);
  if (json.is_object() && json.contains("strategy") && json.contains("bound_seconds")) {
    return plan_data_from(json, name);
  }
  if (is_training_line(json)) return training_data({json}, nullptr, name);
  if (json.is_array() && !json.empty()) {
    if (std::ranges::all_of(json, is_report)) {
      return report_data(std::vector<Json>(json.begin(), json.end()), name);
    }
    if (json.front().is_object() && json.front().contains("bound_seconds")) {
      return sweep_data(json, name);
    }
  }
  fail(ErrorCode::invalid_argument, name, ": ebb has no page for this JSON; ", kWhatPagesShow);
}

// Of `ebb plan --json --actions` the first line says all; the report at the end of `ebb train --json` stands below its curves.
Json data_of_lines(std::vector<Json> lines, std::string_view name) {
  if (!lines.empty() && lines.front().is_object() && lines.front().contains("question")) {
    return plan_data_from(lines.front(), name);
  }
  if (!lines.empty() && std::ranges::all_of(lines, is_report)) return report_data(lines, name);
  std::vector<Json> training;
  Json report, options;
  for (Json& line : lines) {
    if (is_training_line(line)) {
      training.push_back(std::move(line));
      continue;
    }
    if (!line.is_object()) continue;
    if (line.contains("report") && is_report(line["report"])) report = line["report"];
    if (line.contains("event") && line["event"] == "plan") options = line;
  }
  if (training.empty() && options.is_null()) {
    fail(ErrorCode::invalid_argument, name, ": ebb has no page for these lines of JSON; ",
         kWhatPagesShow);
  }
  Json data = training_data(std::move(training), options, name);
  if (!report.is_null()) data["reports"] = report_data({report}, name)["reports"];
  return data;
}

// What else the library for JSON finds wrong, it says in a way of its own.
template <class Make>
Json guarded(std::string_view name, const Make& make) {
  try {
    return make();
  } catch (const Json::exception& error) {
    fail(ErrorCode::invalid_argument, name,
         ": this JSON was not written by ebb, or has been changed: ", error.what());
  }
}

Json data_of(std::string_view text, std::string_view name) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) {
    fail(ErrorCode::invalid_argument, name, ": the file is empty; ", kWhatPagesShow);
  }
  const std::size_t end = text.find('\n', begin);
  const std::string_view first =
      text.substr(begin, end == std::string_view::npos ? end : end - begin);
  const bool more = end != std::string_view::npos &&
                    text.find_first_not_of(" \t\r\n", end) != std::string_view::npos;
  const bool lines = more && Json::accept(first.begin(), first.end());
  return guarded(name, [&] {
    return lines ? data_of_lines(lines_of(text, name), name)
                 : data_of_one(parse_json(text, name), name);
  });
}

// The last name of a path.
std::string title_of(const std::filesystem::path& path) {
  std::filesystem::path clean = std::filesystem::absolute(path).lexically_normal();
  if (clean.filename().empty()) clean = clean.parent_path();
  return shown(clean.filename().string());
}

// A file of a run's directory that stands beside its curves; null where it cannot be read, as while it is being replaced: no reason to
// show nothing.
Json beside_curves(const std::filesystem::path& file) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return nullptr;
  const std::string text = read_text(file);
  Json json = Json::parse(text.begin(), text.end(), nullptr, false);
  return json.is_object() ? json : Json(nullptr);
}

Json data_of_run(const std::filesystem::path& directory, const std::filesystem::path& metrics) {
  const std::string name = title_of(directory);
  std::vector<Json> training;
  for (Json& line : lines_of(read_text(metrics), shown(metrics.string()))) {
    if (is_training_line(line)) training.push_back(std::move(line));
  }
  const Json index = beside_curves(directory / "train.json");
  Json data = training_data(std::move(training),
                            index.is_null() ? index : index.value("options", Json()), name);
  const Json report = beside_curves(directory / "report.json");
  if (is_report(report)) data["reports"] = report_data({report}, name)["reports"];
  return data;
}

}  // namespace

std::string plan_page(const PlanPage& of) { return page_of(plan_data(of)); }

std::string document_page(std::string_view text, std::string_view name) {
  return page_of(data_of(text, name));
}

std::string file_page(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored))
    return document_page(read_text(path), title_of(path));
  const std::filesystem::path metrics = path / "metrics.jsonl";
  if (!std::filesystem::is_regular_file(metrics, ignored)) {
    fail(
        ErrorCode::invalid_argument, shown(path.string()),
        ": there is no metrics.jsonl in this directory; give one that ebb train --out has written");
  }
  return page_of(guarded(title_of(path), [&] { return data_of_run(path, metrics); }));
}

}  // namespace ebb
