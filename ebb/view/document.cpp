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
    "pages show what ebb plan --json and ebb train --json write, reports and traces as JSON, and "
    "directories of training runs";

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) fail(ErrorCode::io, "cannot read '", shown(path.string()), "'");
  return text.str();
}

// One object a line. The last line of a file that is being written may be cut off; of others that is an error.
std::vector<Json> lines_of(std::string_view text, std::string_view name) {
  std::vector<Json> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    Json json = Json::parse(line.begin(), line.end(), nullptr, false);
    if (json.is_discarded()) {
      if (text.empty() && !lines.empty()) break;
      json = parse_json(line, std::string(name) + ": line " + std::to_string(lines.size() + 1));
    }
    lines.push_back(std::move(json));
  }
  return lines;
}

Json data_of_one(const Json& json, std::string_view name) {
  if (is_trace(json)) return trace_data(json, name);
  if (is_report(json)) return report_data({json}, name);
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
  fail(ErrorCode::invalid_argument, name, ": this JSON is none that ebb shows; ", kWhatPagesShow);
}

// Of `ebb plan --json --actions` the first line says all; the report at the end of `ebb train --json` stands below its curves.
Json data_of_lines(const std::vector<Json>& lines, std::string_view name) {
  if (!lines.empty() && lines.front().is_object() && lines.front().contains("question")) {
    return plan_data_from(lines.front(), name);
  }
  if (!lines.empty() && std::ranges::all_of(lines, is_report)) return report_data(lines, name);
  std::vector<Json> training;
  Json report, options;
  for (const Json& line : lines) {
    if (is_training_line(line)) training.push_back(line);
    if (!line.is_object()) continue;
    if (line.value("event", "") == "plan") options = line;
    if (line.contains("report") && is_report(line["report"])) report = line["report"];
  }
  if (training.empty() && options.is_null()) {
    fail(ErrorCode::invalid_argument, name, ": these lines of JSON are none that ebb shows; ",
         kWhatPagesShow);
  }
  Json data = training_data(training, options, name);
  if (!report.is_null()) data["reports"] = report_data({report}, name)["reports"];
  return data;
}

Json data_of(std::string_view text, std::string_view name) {
  const std::size_t last = text.find_last_not_of(" \t\r\n");
  if (last == std::string_view::npos) {
    fail(ErrorCode::invalid_argument, name, ": the file is empty; ", kWhatPagesShow);
  }
  text = text.substr(0, last + 1);
  const std::size_t end = text.find('\n');
  const std::string_view first = text.substr(0, end);
  const bool lines = end != std::string_view::npos && Json::accept(first.begin(), first.end());
  try {
    return lines ? data_of_lines(lines_of(text, name), name)
                 : data_of_one(parse_json(text, name), name);
  } catch (const Json::exception& error) {
    fail(ErrorCode::invalid_argument, name, ": this JSON is not as ebb writes it: ", error.what());
  }
}

// The options of a run, as far as they are there to be read.
Json options_of(const std::filesystem::path& directory) {
  std::error_code ignored;
  if (!std::filesystem::exists(directory / "train.json", ignored)) return nullptr;
  const Json json =
      parse_json(read_text(directory / "train.json"), shown((directory / "train.json").string()));
  return json.is_object() && json.contains("options") ? json["options"] : Json(nullptr);
}

std::string title_of(const std::filesystem::path& path) {
  std::filesystem::path clean = path.lexically_normal();
  if (clean.filename().empty()) clean = clean.parent_path();
  return clean.filename().empty() || clean == "."
             ? std::filesystem::absolute(path).lexically_normal().string()
             : clean.filename().string();
}

}  // namespace

std::string plan_page(const PlanPage& of) { return page_of(plan_data(of)); }

std::string document_page(std::string_view text, std::string_view name) {
  return page_of(data_of(text, name));
}

std::string file_page(const std::filesystem::path& path) {
  const std::string name = shown(path.string());
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) {
    return page_of(data_of(read_text(path), name));
  }
  if (!std::filesystem::exists(path / "metrics.jsonl", ignored)) {
    fail(
        ErrorCode::invalid_argument, name,
        ": there is no metrics.jsonl in this directory; give one that ebb train --out has written");
  }
  const std::vector<Json> lines =
      lines_of(read_text(path / "metrics.jsonl"), name + ": metrics.jsonl");
  std::vector<Json> training;
  std::ranges::copy_if(lines, std::back_inserter(training), is_training_line);
  return page_of(training_data(training, options_of(path), title_of(path)));
}

}  // namespace ebb
