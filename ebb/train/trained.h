// SPDX-License-Identifier: Apache-2.0
// A net that has been trained, from its checkpoint alone: what it was trained for, how it is built and
// its parameters.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "ebb/data/task.h"
#include "ebb/train/options.h"
#include "ebb/train/safetensors.h"

namespace ebb {

struct TrainedModel {
  std::string name;            // of its file, for messages
  TrainOptions options;        // of the run; from a bare file those that decide the numbers alone
  TaskShape shape;             // of the run's task
  std::int64_t iteration = 0;  // iterations done
  std::vector<std::string> classes;  // their names, in order; empty: they have none
  std::string symbols;               // of text: the byte of each class
  std::vector<TensorView> tensors;
  // What the tensors look into.
  std::shared_ptr<const void> held;
};

// What load_trained needs to know, as notes in a file of parameters: "ebb_version", "task", "cell",
// "dtype", "iteration", "steps", "inputs", "outputs", "spikes" and "every_step" ("true" or "false"),
// "kind" ("classification" or "regression"), "options" (the run's as a JSON object, but for those that
// leave the numbers alone), and where there are any "classes" (a JSON array of names) or "bytes" (of
// text: a JSON array of the byte of each class).
TensorNotes model_notes(const TrainOptions& options, const Task& task, std::int64_t iteration);

// From a run's folder, or a file model.safetensors alone. Throws Error(io): nothing is there, or it is
// damaged; Error(invalid_argument): it is not of a run, or of one that an earlier version saved.
TrainedModel load_trained(const std::filesystem::path& run);

}  // namespace ebb
