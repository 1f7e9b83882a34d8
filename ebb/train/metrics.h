// SPDX-License-Identifier: Apache-2.0
// What a run measured, one JSON object a line, in metrics.jsonl.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "ebb/core/bytes.h"
#include "ebb/data/task.h"

namespace ebb {

// {"iteration":100,"split":"train","loss":0.69,"accuracy":0.5,"lr":0.001,"gradient_norm":1.2,
// "seconds":3.5,"peak_bytes":1024}; a number that is not finite is null, one that is not set is left
// out.
struct Metrics {
  std::int64_t iteration = 0;  // iterations done
  Split split = Split::train;
  double loss = 0;
  std::string metric;  // the name under which `value` is written; empty: none
  double value = 0;
  std::optional<double> lr, gradient_norm;
  double seconds = 0;  // of training, that before a checkpoint included
  std::optional<Bytes> peak_bytes;
};

class MetricsFile {
 public:
  // Opens metrics.jsonl in `directory` to append to it, and makes it if there is none. Of what is there
  // only whole lines of iterations up to `last` stay: a killed run may have written more than its
  // checkpoint knows of. -1: nothing stays. Whatever happens meanwhile, the file is as it was or cut.
  // Throws Error(io).
  MetricsFile(const std::filesystem::path& directory, std::int64_t last);
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;
  ~MetricsFile();

  // Of the last line that stayed; 0 without one.
  double seconds() const { return seconds_; }
  // The line is in the file, whole, when it returns, or the file is as it was. Throws Error(io), and
  // Error(invalid_argument) for a metric with the name of something else in the line.
  void append(const Metrics& metrics);
  // After it the lines survive a loss of power. Before a checkpoint is saved. Throws Error(io).
  void sync();

 private:
  struct Open;
  std::unique_ptr<Open> open_;
  double seconds_ = 0;
};

}  // namespace ebb
