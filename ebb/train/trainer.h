// SPDX-License-Identifier: Apache-2.0
// The loop behind train(), for one type of numbers.
#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "ebb/core/error.h"
#include "ebb/data/sampler.h"
#include "ebb/train/learner.h"
#include "ebb/train/train.h"

namespace ebb {

template <class Number>
class Trainer {
 public:
  // Goes on from a checkpoint if there is one. With settings.out there is settings.lock. With
  // `plans_only` the plan's memory is not taken yet.
  Trainer(const TrainOptions& options, const TrainSettings& settings, Ranks& ranks,
          std::optional<Checkpoint> from, bool plans_only = false);
  TrainResult run();
  TrainPlan plan();
  // In the least memory that is at most so much slower than keeping everything.
  TrainPlan plan_within(double slowdown);

 private:
  void fill(Split split, std::int64_t iteration);
  Metrics iterate(std::int64_t iteration);
  std::optional<Metrics> test(std::int64_t iteration);
  void tell(const Metrics& metrics);
  void save(std::int64_t iteration);
  void save_if_possible(std::int64_t iteration);
  void save_whole();
  void write_lines();
  bool goes_on_after(const Error& error) const;
  void restore(const Checkpoint& from);
  TrainPlan completed(TrainPlan plan) const;
  std::stop_token stop() const;
  double seconds() const;
  // Throws Error(invalid_argument) if more are done already.
  std::int64_t all_iterations() const;
  std::int64_t asked_iterations() const;

  TrainOptions options_;
  const TrainSettings& settings_;
  Ranks& ranks_;
  std::unique_ptr<Task> task_;
  TaskShape shape_;
  Sampler sampler_;
  Batch batch_;
  std::int64_t filled_ = -1;  // iteration whose samples batch_ has; -1: others
  std::unique_ptr<Learner<Number>> learner_;
  std::string trained_on_;  // see TrainPlan
  std::optional<MetricsFile> metrics_;
  std::deque<Metrics> unwritten_;  // lines that could not be written yet
  std::int64_t first_ = 0, saved_ = -1;
  // Iterations after which parameters and metrics are what they are now; -1: between two of them.
  std::int64_t whole_ = -1;
  double began_ = 0, saved_at_ = 0;
  double earlier_ = 0;  // seconds before the checkpoint
  Report report_;
};

}  // namespace ebb
