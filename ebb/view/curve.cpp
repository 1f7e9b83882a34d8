// SPDX-License-Identifier: Apache-2.0
#include "ebb/view/curve.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ebb/core/error.h"
#include "ebb/plan/bound.h"
#include "ebb/plan/strategies.h"
#include "ebb/plan/words.h"

namespace ebb {
namespace {

constexpr int kPoints = 12;

// Geometrically spaced, the least first.
std::vector<Bytes> budgets_between(Bytes least, Bytes most) {
  if (most <= least || least <= 0) return {least};
  std::vector<Bytes> budgets;
  const double ratio = static_cast<double>(most) / static_cast<double>(least);
  for (int i = 0; i < kPoints; ++i) {
    const double share = std::pow(ratio, static_cast<double>(i) / (kPoints - 1));
    const auto budget = i + 1 == kPoints
                            ? most
                            : static_cast<Bytes>(std::floor(static_cast<double>(least) * share));
    if (budgets.empty() || budget > budgets.back()) budgets.push_back(budget);
  }
  return budgets;
}

using Seconds = std::chrono::duration<double>;

class Clock {
 public:
  double seconds() const { return Seconds(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// In the accounting of slots a budget is a whole number of states.
std::optional<Plan> plan_in(const PlanQuestion& question, PlanOptions options, Bytes budget) {
  if (options.slots) {
    options.slots = budget / std::max<Bytes>(1, question.chain.at(0).state);
  } else {
    options.budget = budget;
  }
  try {
    return make_plan(question.chain, question.platform, options);
  } catch (const Error&) {
    return std::nullopt;
  }
}

Bytes most_of(const PlanQuestion& question, const PlanOptions& options) {
  if (!options.slots) return everything_bytes(question.chain, options);
  return scale_bytes(question.chain.at(0).state, std::max<std::int64_t>(1, question.chain.steps()));
}

struct Line {
  std::vector<std::pair<Bytes, double>> points;
  bool whole = true;  // time sufficed
};

// The ends first, then ever closer, so that a line that is cut short is coarse and not half.
Line line_of(const PlanQuestion& question, const PlanOptions& options, double allowance) {
  const Clock clock;
  Line line;
  std::optional<Bytes> least;
  try {
    least = least_budget(question.chain, question.platform, options);
  } catch (const Error&) {
    return line;  // it cannot answer such a question
  }
  if (!least) return line;
  const std::vector<Bytes> budgets = budgets_between(*least, most_of(question, options));
  constexpr int order[kPoints] = {11, 0, 6, 3, 9, 1, 5, 8, 2, 4, 7, 10};
  double last = 0;
  for (const int i : order) {
    if (i >= static_cast<int>(budgets.size())) continue;
    const double before = clock.seconds();
    // The next point takes about as long as the one before.
    if (before + last > allowance) {
      line.whole = false;
      break;
    }
    if (const auto plan = plan_in(question, options, budgets[static_cast<std::size_t>(i)])) {
      line.points.emplace_back(plan->machine.platform.fast, plan->prediction.seconds);
    }
    last = clock.seconds() - before;
  }
  std::ranges::sort(line.points);
  return line;
}

Json bound_between(const PlanQuestion& question, const Machine& machine, Bytes least, Bytes most) {
  Json points = Json::array();
  for (const Bytes budget : budgets_between(least, most)) {
    Machine own = machine;
    own.platform.fast = budget;
    points.push_back({budget, bound(question.chain, own).seconds});
  }
  return points;
}

}  // namespace

Json budget_curve(const PlanQuestion& question, const Plan& plan, double limit) {
  const Clock clock;
  std::vector<std::string> names{question.options.strategy};
  const auto add = [&names](std::string_view name) {
    if (std::ranges::find(names, name) == names.end()) names.emplace_back(name);
  };
  add("auto");
  add(plan.strategy);
  for (const StrategyRow& row : strategies()) add(row.name);
  Json lines = Json::array(), left_out = Json::array();
  Bytes least = kUnlimited, most = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    PlanOptions options = question.options;
    options.strategy = names[i];
    if (i > 0) {
      options.intervals.clear();
      options.period.reset();
    }
    const double left = limit - clock.seconds();
    if (left <= 0) {
      left_out.push_back(names[i]);
      continue;
    }
    // What is asked for gets most of the time.
    const double share = i == 0 ? 0.6 : 1 / static_cast<double>(names.size() - i);
    const Line line = line_of(question, options, left * share);
    if (!line.whole) left_out.push_back(names[i]);
    if (line.points.empty()) continue;
    least = std::min(least, line.points.front().first);
    most = std::max(most, line.points.back().first);
    Json points = Json::array();
    for (const auto& [budget, seconds] : line.points) points.push_back({budget, seconds});
    lines.push_back({{"strategy", names[i]}, {"points", points}});
  }
  return {
      {"lines", lines},
      {"bound", lines.empty() ? Json::array() : bound_between(question, plan.machine, least, most)},
      {"left_out", left_out}};
}

}  // namespace ebb
