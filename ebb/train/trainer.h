// SPDX-License-Identifier: Apache-2.0
// The loop behind train(), for one type of numbers.
#pragma once

#include <memory>
#include <optional>

#include "ebb/data/sampler.h"
#include "ebb/train/batch_run.h"
#include "ebb/train/train.h"

namespace ebb {

template <class Number>
class Trainer {
 public:
  // Goes on from a checkpoint if there is one.
  Trainer(const TrainOptions& options, const TrainSettings& settings, Ranks& ranks,
          std::optional<Checkpoint> from);
  TrainResult run();

 private:
  void fill(Split split, std::int64_t iteration);
  Metrics iterate(std::int64_t iteration);
  std::optional<Metrics> test(std::int64_t iteration);
  void tell(const Metrics& metrics);
  void save(std::int64_t iteration);
  void restore(const Checkpoint& from);
  void announce();
  std::stop_token stop() const;
  double seconds() const;
  std::int64_t all_iterations() const;

  TrainOptions options_;
  const TrainSettings& settings_;
  Ranks& ranks_;
  std::unique_ptr<Task> task_;
  TaskShape shape_;
  Sampler sampler_;
  Batch batch_;
  std::optional<BatchRun<Number>> run_;
  Optimiser<Number> optimiser_;
  std::optional<MetricsFile> metrics_;
  std::int64_t first_ = 0, saved_ = -1;
  double began_ = 0, saved_at_ = 0;
  double earlier_ = 0;  // seconds before the checkpoint
  Report report_;
};

}  // namespace ebb
