// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/train_plan.h"

#include <ostream>
#include <string_view>
#include <utility>

#include "ebb/cli/train_text.h"
#include "ebb/core/error.h"
#include "ebb/core/json.h"
#include "ebb/core/words.h"

namespace ebb {
namespace {

// "1.2x" or "1.2".
double read_slowdown(std::string_view word) {
  const std::string_view number = word.ends_with('x') ? word.substr(0, word.size() - 1) : word;
  const std::optional<double> slowdown = finite_number(number);
  if (!slowdown || *slowdown < 1) {
    fail(ErrorCode::invalid_argument, "--find-budget is '", shown(word),
         "'; it must be 1 or more times the time of keeping everything, such as 1.2x");
  }
  return *slowdown;
}

TrainPlan plan_of(TrainPlanRequest& request, std::optional<double> slowdown, Ranks& ranks) {
  const TrainOptions& options = request.options;
  const TrainSettings& settings = request.settings;
  std::optional<Checkpoint> from = std::move(request.from);
  if (slowdown) {
    return from ? find_budget(options, settings, ranks, *slowdown, std::move(*from))
                : find_budget(options, settings, ranks, *slowdown);
  }
  return from ? plan_training(options, settings, ranks, std::move(*from))
              : plan_training(options, settings, ranks);
}

}  // namespace

void declare_train_plan(Heading& heading, TrainPlanWords& words) {
  heading.flag("--plan-only", words.plan_only,
               "Say whether it fits, how slow it is and what is\nwhere; train and write nothing");
  heading.option("--find-budget", words.find_budget, "1.2x",
                 "The least memory within that time, of the time of\nkeeping everything, and its "
                 "plan; trains nothing");
}

void answer_train_plan(const TrainPlanWords& words, TrainPlanRequest request, Ranks& ranks,
                       std::ostream& out, std::ostream& err) {
  std::optional<double> slowdown;
  if (!words.find_budget.empty()) slowdown = read_slowdown(words.find_budget);
  const bool speaks = ranks.rank() == 0;
  try {
    const TrainPlan plan = plan_of(request, slowdown, ranks);
    if (!speaks) return;
    TrainText text(request.options, request.json, out, err);
    if (slowdown) text.found(plan, *slowdown);
    text.plan(plan);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::infeasible_budget && request.json && speaks) {
      Json json;
      json["event"] = "plan";
      json["fits"] = false;
      json["least_budget"] = error.least_budget() ? Json(*error.least_budget()) : Json(nullptr);
      json["why"] = error.what();
      out << json.dump() << '\n' << std::flush;
    }
    throw;
  }
}

}  // namespace ebb
