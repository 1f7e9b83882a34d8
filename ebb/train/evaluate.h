// SPDX-License-Identifier: Apache-2.0
// How good a trained net is on samples of its task.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>

#include "ebb/train/metrics.h"
#include "ebb/train/trained.h"

namespace ebb {

struct EvaluateOptions {
  std::string data = {};  // where the task's files are; empty: where they were in training
  Split split = Split::test;
  std::optional<std::int64_t> samples =
      {};                  // at most, the first; left out: as many as training tested
  std::int64_t batch = 0;  // 0: the run's
  int threads = 0;         // 0: the run's
  std::stop_token stop = {};
};

struct Evaluation {
  Metrics metrics;
  std::int64_t samples = 0;
  double targets = 0;  // that counted
};

// With nothing set, what the test at the end of training said: the same bits, if it was in one process on the CPU.
// Holds one batch and, of each sequence, the state alone. Throws Error(invalid_argument) for data of
// another kind than the net was trained on, or without a target, Error(io), Error(cancelled).
Evaluation evaluate(const TrainedModel& model, const EvaluateOptions& options);

}  // namespace ebb
