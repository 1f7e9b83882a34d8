// SPDX-License-Identifier: Apache-2.0
// The words of `ebb bench gruslys`, as they are given.
#pragma once

#include <optional>
#include <string>

#include "ebb/cli/bench_output.h"

namespace ebb {

struct GruslysWords {
  std::optional<std::string> device, input, hidden, batch, steps, chunk, memory, lengths, budgets,
      threads, repeat;
  std::optional<std::string> number;  // of a GPU
  bool quick = false;
  BenchOutput output;
};

}  // namespace ebb
