// SPDX-License-Identifier: Apache-2.0
// How every experiment of `ebb bench` answers: as text, --json or --csv, and --view beside each.
#pragma once

#include <functional>
#include <iosfwd>
#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace ebb {

// As the words say.
struct BenchOutput {
  bool json = false, csv = false;
  std::optional<std::string> view;
};

// `json`: what --json writes, "one object with three series".
void declare_bench_output(CLI::App& app, BenchOutput& output, const std::string& json);

// Before the experiment runs. Throws Error for options that contradict each other and for a page that cannot be written.
void check_bench_output(const BenchOutput& output);

// The forms of one result.
struct BenchForms {
  std::function<std::string()> json;
  std::function<void(std::ostream&)> csv, text;
};

// The page comes last: where it cannot be written, the result is not lost.
void write_bench(const BenchOutput& output, const BenchForms& forms, std::ostream& out);

}  // namespace ebb
