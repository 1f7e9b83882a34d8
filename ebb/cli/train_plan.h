// SPDX-License-Identifier: Apache-2.0
// `ebb train --plan-only` and `--find-budget`: what training would take, without training.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>

#include "ebb/cli/heading.h"
#include "ebb/train/train.h"

namespace ebb {

// The words as typed.
struct TrainPlanWords {
  bool plan_only = false;
  std::string find_budget;

  bool are_given() const { return plan_only || !find_budget.empty(); }
};

void declare_train_plan(Heading& heading, TrainPlanWords& words);

struct TrainPlanRequest {
  const TrainOptions& options;
  const TrainSettings& settings;
  std::optional<Checkpoint> from;
  bool json = false;
};

// Plans and says so, in the first process alone. Throws like plan_training, and
// Error(invalid_argument) for a factor that cannot be.
void answer_train_plan(const TrainPlanWords& words, TrainPlanRequest request, Ranks& ranks,
                       std::ostream& out, std::ostream& err);

}  // namespace ebb
