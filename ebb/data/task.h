// SPDX-License-Identifier: Apache-2.0
// A task: where sequences come from and what a net should make of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ebb/data/batch.h"
#include "ebb/data/fingerprint.h"

namespace ebb {

enum class Split { train, test };

struct TaskShape {
  std::int64_t steps = 0;    // T, the longest sequence
  std::int64_t inputs = 0;   // I
  std::int64_t outputs = 0;  // O
  bool spikes = false;       // inputs are bits
  bool classes = false;      // cross-entropy over O classes; otherwise squared error of O numbers
  bool every_step = false;   // a target at every step; otherwise one at the end of each sequence
};

struct TaskOptions {
  std::string name;              // a row of tasks()
  std::filesystem::path data{};  // where files are; tasks without files ignore it
  std::int64_t steps = 0;        // T; 0: the task's own
  std::uint64_t seed = 1;        // for what is drawn at random
  // For a net that has been trained: the byte of each of its classes (text; empty: those that occur
  // in the file), and the only split that will be asked for (npy: the other's files may be missing).
  std::string symbols{};
  std::optional<Split> only{};
};

// Reading is done when the task is made; batches are made without it. The same samples are the same
// numbers whenever they are asked for, whatever else was.
class Task {
 public:
  Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  virtual ~Task() = default;

  virtual TaskShape shape() const = 0;
  static constexpr std::int64_t kEndless = -1;
  // How many samples there are; kEndless where each number is a new one.
  virtual std::int64_t samples(Split split) const = 0;
  // Fills `batch` with those samples, each 0 <= sample < samples(split), in that order.
  virtual void fill(Split split, std::span<const std::int64_t> samples, Batch& batch) const = 0;
  // Data that it holds in memory.
  virtual Bytes bytes() const { return 0; }

  // What the classes are called, in their order; empty: they have numbers only.
  virtual std::vector<std::string> class_names() const { return {}; }
  // Of classes that are bytes: those bytes, in the order of the classes.
  virtual std::string symbols() const { return {}; }

  // Of the files that make_task read for it.
  const DataFingerprint& data() const { return data_; }

 private:
  friend std::unique_ptr<Task> make_task(const TaskOptions& options);
  DataFingerprint data_;
};

// Throws Error(invalid_argument) for a name that is none, steps that the task cannot have and files
// that are not what they should be, Error(io) for files that are missing, with where to get them.
std::unique_ptr<Task> make_task(const TaskOptions& options);

struct TaskRow {
  std::string name;
  std::string what;    // one line
  std::string files;   // what --data holds; empty: nothing
  std::int64_t steps;  // its own T; 0: as long as the data are
};
const std::vector<TaskRow>& tasks();

}  // namespace ebb
