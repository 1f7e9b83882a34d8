// SPDX-License-Identifier: Apache-2.0
// What `ebb train` says: the plan before, a line meanwhile, the result after; as text and as JSON.
#pragma once

#include <iosfwd>
#include <string>

#include "ebb/cli/status_line.h"
#include "ebb/train/train.h"

namespace ebb {

class TrainText {
 public:
  // Results go to `out`, the live line to `err` where that is a terminal.
  TrainText(const TrainOptions& options, bool json, std::ostream& out, std::ostream& err);

  void plan(const TrainPlan& plan);
  // The budget that was asked for by a slowdown; before its plan.
  void found(const TrainPlan& plan, double slowdown);
  void planned_again(const TrainPlan& plan, const WrongPrediction& wrong);
  void line(const TrainLine& line);
  void result(const TrainResult& result, const std::string& directory);

 private:
  std::string progress(const TrainLine& line) const;

  const TrainOptions& options_;
  bool json_;
  std::ostream& out_;
  StatusLine status_;
  TrainPlan plan_;
  double first_seconds_ = -1, last_line_ = 0;
  std::int64_t first_iteration_ = 0;
};

}  // namespace ebb
