// SPDX-License-Identifier: Apache-2.0
// What a trained net makes of sequences in a file, in memory that depends neither on how long they are
// nor on how many.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "ebb/train/trained.h"

namespace ebb {

struct PredictOptions {
  // .npy of [N,T,I], or [T,I]: one sequence; where I is 1 also [N,T]. For a net on spikes 0 and 1.
  std::filesystem::path data;
  std::filesystem::path out;            // .npy
  std::optional<bool> every_step = {};  // left out: as in training; false: the last step's alone
  bool classes = false;                 // the number of the largest output instead of the outputs
  std::int64_t batch = 0;               // sequences at a time; 0: the run's
  int threads = 0;                      // 0: the run's
  std::stop_token stop = {};
};

struct PredictResult {
  std::vector<std::int64_t> shape;  // of what was written: [N,T,O] or [N,O], without O for classes
  std::string dtype;                // "float32", "float64" or "int64"
  double seconds = 0;
};

// The file gets its name when it is whole. Throws Error(io), Error(cancelled), and
// Error(invalid_argument) for arrays that the net cannot read.
PredictResult predict(const TrainedModel& model, const PredictOptions& options);

}  // namespace ebb
