// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/view_command.h"

#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <memory>
#include <ostream>
#include <system_error>

#include "ebb/cli/heading.h"
#include "ebb/core/error.h"
#include "ebb/core/words.h"
#include "ebb/train/durable_file.h"
#include "ebb/view/document.h"

namespace ebb {
namespace {

constexpr const char* kViewFooter = R"(
The page is one HTML file that needs no network and no server. It shows
  a plan      of ebb plan --json: the schedule, transfers and waiting, memory
              against its budgets, time against budget for every strategy
  a sweep     of ebb plan --json --sweep: time against budget
  a report    Report::json() in C++, json.dumps(report.as_dict()) in Python;
              also several, one per line: predicted next to measured
  a model     compression_report(...).to_json() in Python: bytes, time and
              gradient error of each layer
  a bench     of ebb bench --json: time predicted next to measured, against
              steps, memory or whatever else the experiment varies
  a trace     of Run::trace_json(): what ran, moved and waited when
  a training  the directory of ebb train --out, its metrics.jsonl, or what
  run         ebb train --json wrote: loss, measure, gradients

ebb plan, train and bench --view FILE make their pages at once.
FILE may be - for standard input. Exit codes: 0 done, 2 bad usage or input, 3 the
plan does not fit, 4 a file cannot be read or written.

Examples
  ebb plan --steps 300 --state 1MiB --tape 4MiB --budget 60MiB --json > plan.json
  ebb view plan.json
  ebb bench gruslys --quick --json > bench.json && ebb view bench.json
  ebb view run -o run.html
)";

struct ViewWords {
  std::string input, output;
};

// "plan.json" becomes plan.html here; a directory run run.html.
std::filesystem::path page_path(const std::string& input) {
  std::filesystem::path path = std::filesystem::path(input).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  if (path.filename().empty() || path.filename() == "." || path.filename() == ".." || path == "-")
    return "page.html";
  std::error_code ignored;
  const std::filesystem::path name =
      std::filesystem::is_directory(path, ignored) ? path.filename() : path.stem();
  return name.string() + ".html";
}

// A link stays one.
std::filesystem::path target_of(std::filesystem::path path) {
  std::error_code ignored;
  for (int links = 0; links < 40 && std::filesystem::is_symlink(path, ignored); ++links) {
    path = path.parent_path() / std::filesystem::read_symlink(path, ignored);
  }
  return path;
}

// A pipe or a device is written to.
bool is_replaced(const std::filesystem::path& target) {
  std::error_code ignored;
  return !std::filesystem::exists(target, ignored) ||
         std::filesystem::is_regular_file(target, ignored);
}

void answer_view(const ViewWords& words, std::ostream& out) {
  const std::string input = words.input == "-" ? "/dev/stdin" : words.input;
  const std::filesystem::path path =
      words.output.empty() ? page_path(words.input) : std::filesystem::path(words.output);
  std::error_code ignored;
  if (std::filesystem::equivalent(path, input, ignored)) {
    fail(ErrorCode::invalid_argument, "-o is '", shown(path.string()),
         "', the file to show; give another name");
  }
  if (path != "-") check_page_path("-o", path);
  const std::string page = file_page(input);
  if (path == "-") {
    out << page;
    return;
  }
  write_page("-o", path, page);
  out << path.string() << '\n';
}

}  // namespace

void check_page_path(std::string_view option, const std::filesystem::path& path) {
  std::error_code ignored;
  if (path == "-") {
    fail(ErrorCode::invalid_argument, option, " is '-'; give the name of a file");
  }
  if (path.empty() || std::filesystem::is_directory(path, ignored)) {
    fail(ErrorCode::invalid_argument, option, " is '", shown(path.string()),
         path.empty() ? "'; give the name of a file"
                      : "', a directory; give the name of a file in it");
  }
  const std::filesystem::path target = target_of(path);
  const std::filesystem::path folder = std::filesystem::absolute(target, ignored).parent_path();
  if (!std::filesystem::is_directory(folder, ignored)) {
    fail(ErrorCode::io, option, " is '", shown(path.string()), "'; there is no directory '",
         shown(folder.string()), "'");
  }
  const std::filesystem::path& written = is_replaced(target) ? folder : target;
  if (::access(written.c_str(), W_OK) != 0) {
    fail(ErrorCode::io, option, " is '", shown(path.string()), "'; '", shown(written.string()),
         "' cannot be written: ", std::system_category().message(errno));
  }
}

void write_page(std::string_view option, const std::filesystem::path& path,
                const std::string& page) {
  check_page_path(option, path);
  const std::filesystem::path target = target_of(path);
  if (is_replaced(target)) {
    replace_file(target, page);
    return;
  }
  std::ofstream file(target, std::ios::binary);
  file << page;
  if (!file.flush()) fail(ErrorCode::io, "'", shown(path.string()), "' cannot be written");
}

Command declare_view(CLI::App& app) {
  const auto words = std::make_shared<ViewWords>();
  Heading heading(app, "The page");
  heading.argument("FILE", words->input, "What to show, a file or the directory of a training run");
  heading.option("-o,--output", words->output, "FILE.html",
                 "Where to write the page; default: FILE's name with .html in the "
                 "current\ndirectory; - writes to standard output");
  set_footer(app, kViewFooter);
  return [words](std::ostream& out, std::ostream&) { answer_view(*words, out); };
}

}  // namespace ebb
