// SPDX-License-Identifier: Apache-2.0
// What runs have written, as data for pages: reports, experiments, traces, lines of training. Private to the room.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ebb/core/json.h"

namespace ebb {

// "Training: run"; without a name "Training".
inline std::string titled(const char* what, std::string_view name) {
  return name.empty() ? what : std::string(what) + ": " + std::string(name);
}

bool is_report(const Json& json);
Json report_data(const std::vector<Json>& reports, std::string_view name);

// What Python's compression_report says as JSON.
bool is_compression(const Json& json);
Json compression_data(const Json& json, std::string_view name);

// What `ebb bench --json` says.
bool is_bench(const Json& json);
Json bench_data(const Json& json, std::string_view name);

bool is_trace(const Json& json);
Json trace_data(const Json& json, std::string_view name);

// A line of metrics.jsonl or of `ebb train --json`.
bool is_training_line(const Json& json);
// `options` are those of the run, where they are known.
Json training_data(std::vector<Json> lines, const Json& options, std::string_view name);

}  // namespace ebb
