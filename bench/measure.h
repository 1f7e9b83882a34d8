// SPDX-License-Identifier: Apache-2.0
// Time and memory for the benchmark programs. What is measured is theirs to say.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

namespace ebb::bench {

using Json = nlohmann::ordered_json;

// CPU seconds of this thread. ebb plans in one thread: on an idle machine this is the wall clock,
// on a busy one it is still what planning takes.
double cpu_seconds();

// The least CPU seconds of up to `runs` runs; no further run once they have taken `enough` seconds
// in all.
double least_seconds(const std::function<void()>& work, int runs = 5, double enough = 2);

struct Child {
  std::optional<Json> result;  // nullopt: it did not end in time, or died
  double peak_mib = 0;         // the largest resident set of the process
};

// Runs `work` in a process of its own and hands back what it returns; ends it after `limit`
// seconds.
Child in_child(const std::function<Json()>& work, double limit);

}  // namespace ebb::bench
