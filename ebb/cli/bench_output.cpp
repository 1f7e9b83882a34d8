// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/bench_output.h"

#include <ostream>

#include "ebb/cli/heading.h"
#include "ebb/cli/view_command.h"
#include "ebb/core/error.h"
#include "ebb/view/document.h"

namespace ebb {

void declare_bench_output(CLI::App& app, BenchOutput& output, const std::string& json) {
  Heading heading(app, "The answer");
  heading.flag("--json", output.json, "Figure data: " + json);
  heading.flag("--csv", output.csv, "Figure data: one line a point");
  heading.option("--view", output.view, "FILE.html",
                 "Also write a page for a browser: charts of what is\n"
                 "predicted and measured. ebb view makes it later,\nof what --json wrote");
}

void check_bench_output(const BenchOutput& output) {
  if (output.json && output.csv) {
    fail(ErrorCode::invalid_argument, "--json and --csv contradict each other; give one of them");
  }
  if (output.view) check_page_path("--view", *output.view);
}

void write_bench(const BenchOutput& output, const BenchForms& forms, std::ostream& out) {
  const std::string json = output.json || output.view ? forms.json() : "";
  if (output.json) {
    out << json << '\n';
  } else if (output.csv) {
    forms.csv(out);
  } else {
    forms.text(out);
  }
  if (output.view) write_page("--view", *output.view, document_page(json, "ebb bench"));
}

}  // namespace ebb
