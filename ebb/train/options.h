// SPDX-License-Identifier: Apache-2.0
// Everything that decides how a net is trained: what `ebb train` reads from its words or a
// configuration file and keeps with its checkpoints.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/cell/cell.h"
#include "ebb/core/bytes.h"
#include "ebb/train/optimiser.h"
#include "ebb/train/schedule.h"

namespace ebb {

// Everything that a training run is made from: task, net, learning, budgets.
struct TrainOptions {
  std::string task = "adding";  // a row of tasks()
  std::string data = {};        // where its files are
  std::int64_t steps = 0;       // of a sequence; 0: the task's own
  std::int64_t batch = 32;      // of each process
  std::uint64_t seed = 1;

  // Each layer, lowest first, is `layer` with its own input; on top of them the readout.
  LayerOptions layer = {.cell = "lstm", .hidden = 128};
  std::int64_t layers = 1;
  std::string readout = "linear";  // or "leaky"
  bool pipelined = false;
  double dropout = 0;
  // float or double, or on a GPU what is multiplied: tf32, bf16 or f16 (see DeviceNetworkOptions; its float is f32). Parameters are floats
  // then.
  std::string dtype = "float";
  std::int64_t chunk = 0;  // see NetworkOptions
  // On a GPU, where chunk is 0: the one that was chosen when training began, from sizes and budgets. Set by train(), so that going on with
  // another budget gives the same bits.
  std::int64_t device_chunk = 0;
  int threads = 0;  // 0: all processors, shared by the processes

  // "64MiB", "5%" of what keeping everything takes, or "unlimited".
  std::string budget = "unlimited";
  // On a GPU: of the host's memory, for states that leave the device meanwhile. In the same words.
  std::string host_budget = "0";
  // A row of strategies(), "auto", or "truncated:K": gradients that reach K time steps back.
  std::string strategy = "auto";

  // "cpu", "cuda", "cuda:1" or "auto": a GPU if there is one that runs the net.
  std::string device = "cpu";

  std::int64_t iterations = 0;  // 0: as many as `epochs` have, or 1000
  std::int64_t epochs = 0;      // over the task's samples
  OptimiserOptions optimiser = {};
  Schedule schedule = {};
  std::int64_t evaluate =
      0;  // on the test samples, each time after this many iterations; 0: at the end
  std::int64_t test_samples = 1000;  // at most; 0: none
  double save_seconds = 30;          // between checkpoints
  std::int64_t processes = 1;        // that train together; set when training begins
};

// Throws Error(invalid_argument) for values that cannot be; what depends on the task is checked
// when training begins.
void check_options(const TrainOptions& options);

// Whether an option is 1 or more where it is given; left out, its 0 means a default.
bool needs_one(std::string_view key);
// One JSON object; keys that are left out keep the values above. Throws Error(invalid_argument) that
// opens with `what` for unknown keys, wrong types, and a 0 for what needs_one.
TrainOptions options_from_json(std::string_view text, std::string_view what);
std::string to_json(const TrainOptions& options);

// Whether an option may change when training goes on: it decides none of the numbers.
bool is_free_option(std::string_view key);

// K of "truncated:K", or 0.
std::int64_t truncation(const TrainOptions& options);
// The budgets' bytes, where keeping everything takes `plain`.
Bytes budget_bytes(const TrainOptions& options, Bytes plain);
Bytes host_budget_bytes(const TrainOptions& options, Bytes plain);
// Whether only a GPU computes with them: "tf32", "bf16", "f16".
bool is_device_number(std::string_view dtype);

}  // namespace ebb
