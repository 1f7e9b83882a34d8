// SPDX-License-Identifier: Apache-2.0
// The words that every command on a trained net has: which one, and how its work is done.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ebb/cli/heading.h"

namespace ebb {

struct TrainedWords {
  std::string run;
  std::optional<std::string> batch, threads;

  // 0: the run's own. Throw Error(invalid_argument) for words that are no such number.
  std::int64_t batch_size() const;
  int thread_count() const;
};

void declare_run(CLI::App& app, TrainedWords& words);
void declare_batch(Heading& heading, TrainedWords& words);
void declare_threads(Heading& heading, TrainedWords& words);

}  // namespace ebb
