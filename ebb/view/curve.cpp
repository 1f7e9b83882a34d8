// SPDX-License-Identifier: Apache-2.0
#include "ebb/view/curve.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ebb/core/error.h"
#include "ebb/plan/bound.h"
#include "ebb/plan/strategies.h"
#include "ebb/plan/words.h"

namespace ebb {
namespace {

constexpr int kPoints = 12, kBoundPoints = 60;

// Geometrically spaced, the least first. From 0 on: 0, then from `unit` on.
std::vector<Bytes> budgets_between(Bytes least, Bytes most, Bytes unit, int points) {
  std::vector<Bytes> budgets{least};
  const Bytes from = std::max(least, std::max<Bytes>(unit, 1));
  if (most <= from) return budgets;
  const double ratio = static_cast<double>(most) / static_cast<double>(from);
  for (int i = 0; i < points; ++i) {
    const double share = std::pow(ratio, static_cast<double>(i) / (points - 1));
    const auto budget =
        i + 1 == points ? most : static_cast<Bytes>(std::floor(static_cast<double>(from) * share));
    if (budget > budgets.back()) budgets.push_back(budget);
  }
  return budgets;
}

class Clock {
 public:
  double seconds() const { return Seconds(std::chrono::steady_clock::now() - start_).count(); }

 private:
  using Seconds = std::chrono::duration<double>;
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

// Points of one strategy, one at a time, from the budget `near` to both sides: a line that is cut short ends
// earlier, and is no coarser.
class Line {
 public:
  Line(const PlanQuestion& question, const std::string& strategy, Bytes near)
      : question_(question), options_(question.options), near_(near) {
    options_.strategy = strategy;
    if (strategy != question.options.strategy) {
      options_.intervals.clear();
      options_.period.reset();
    }
  }

  const std::string& strategy() const { return options_.strategy; }
  bool is_whole() const { return begun_ && next_ == budgets_.size(); }
  // What the next point takes is not known before; it is taken to be what the last one took.
  double seconds_a_point() const { return last_; }
  void add(Bytes budget, double seconds) { points_.emplace_back(budget, seconds); }

  void find_one() {
    const Clock clock;
    if (!begun_) {
      begun_ = true;
      begin();
    }
    if (next_ < budgets_.size()) {
      const Bytes budget = budgets_[next_++];
      if (const auto plan = plan_in(question_, options_, budget)) {
        points_.emplace_back(plan->machine.platform.fast, plan->prediction.seconds);
      }
    }
    last_ = clock.seconds();
  }

  std::vector<std::pair<Bytes, double>> points() const {
    auto points = points_;
    std::sort(points.begin(), points.end());
    points.erase(std::unique(points.begin(), points.end()), points.end());
    return points;
  }

 private:
  void begin() {
    std::optional<Bytes> least;
    try {
      least = least_budget(question_.chain, question_.platform, options_);
    } catch (const Error&) {
      return;  // it cannot answer such a question
    }
    if (!least) return;
    const Bytes state = question_.chain.steps() > 0 ? question_.chain.at(0).state : 1;
    const Bytes most = options_.slots
                           ? scale_bytes(state, std::max<std::int64_t>(1, question_.chain.steps()))
                           : everything_bytes(question_.chain, options_);
    budgets_ = budgets_between(*least, most, options_.slots ? state : 1, kPoints);
    const auto away = [this](Bytes budget) {
      return std::abs(
          std::log((static_cast<double>(budget) + 1) / (static_cast<double>(near_) + 1)));
    };
    std::sort(budgets_.begin(), budgets_.end(),
              [&away](Bytes a, Bytes b) { return away(a) < away(b); });
  }

  const PlanQuestion& question_;
  PlanOptions options_;
  Bytes near_;
  bool begun_ = false;
  std::vector<Bytes> budgets_;  // in the order in which they are tried
  std::size_t next_ = 0;
  double last_ = 0;
  std::vector<std::pair<Bytes, double>> points_;
};

// Where a line has a point and between them: what the bound says there holds for all budgets below.
Json bound_at(const PlanQuestion& question, const Machine& machine, std::vector<Bytes> budgets) {
  std::sort(budgets.begin(), budgets.end());
  const std::vector<Bytes> between =
      budgets_between(budgets.front(), budgets.back(), 1, kBoundPoints);
  budgets.insert(budgets.end(), between.begin(), between.end());
  std::sort(budgets.begin(), budgets.end());
  budgets.erase(std::unique(budgets.begin(), budgets.end()), budgets.end());
  Json points = Json::array();
  for (const Bytes budget : budgets) {
    Machine own = machine;
    own.platform.fast = budget;
    points.push_back({budget, bound(question.chain, own).seconds});
  }
  return points;
}

}  // namespace

Json budget_curve(const PlanQuestion& question, const Plan& plan, double limit) {
  const Clock clock;
  const Bytes own = plan.machine.platform.fast;
  const Bytes near = own == kUnlimited ? plan.prediction.peak[0] : own;
  std::vector<Line> lines;
  const auto add = [&](std::string_view name) {
    const auto has_name = [name](const Line& line) { return line.strategy() == name; };
    if (std::none_of(lines.begin(), lines.end(), has_name)) {
      lines.emplace_back(question, std::string(name), near);
    }
  };
  add(question.options.strategy);
  add("auto");
  add(plan.strategy);
  const std::size_t first = lines.size();
  for (const StrategyRow& row : strategies()) add(row.name);
  // A point for each line, then another one, as long as there is time for it.
  const auto find_until = [&](double end, std::span<Line> some) {
    for (bool any = true; any;) {
      any = false;
      for (Line& line : some) {
        if (line.is_whole() || clock.seconds() + line.seconds_a_point() > end) continue;
        line.find_one();
        any = true;
      }
    }
  };
  find_until(limit / 2, std::span(lines).first(first));
  find_until(limit, lines);
  for (Line& line : lines) {
    const bool chosen =
        line.strategy() == plan.strategy || line.strategy() == question.options.strategy;
    if (chosen && own != kUnlimited) line.add(own, plan.prediction.seconds);
  }
  Json found = Json::array(), left_out = Json::array();
  std::vector<Bytes> budgets;
  for (const Line& line : lines) {
    if (!line.is_whole()) left_out.push_back(line.strategy());
    const auto points = line.points();
    if (points.empty()) continue;
    Json listed = Json::array();
    for (const auto& [budget, seconds] : points) {
      budgets.push_back(budget);
      listed.push_back({budget, seconds});
    }
    found.push_back({{"strategy", line.strategy()}, {"points", listed}});
  }
  return {{"lines", found},
          {"bound", budgets.empty() ? Json::array() : bound_at(question, plan.machine, budgets)},
          {"left_out", left_out}};
}

}  // namespace ebb
