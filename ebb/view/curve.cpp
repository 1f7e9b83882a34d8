// SPDX-License-Identifier: Apache-2.0
#include "ebb/view/curve.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
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
// Budgets that many times smaller and larger than the plan's tell nothing about it.
constexpr Bytes kSpan = 64;

// Their plans take no longer to find for a longer chain.
constexpr std::array<std::string_view, 10> kShort{
    "store_all", "constant",     "revolve",       "hsm",    "sqrt",
    "single",    "single_local", "single_remote", "double", "double_local"};

// What the first plan of a strategy is taken to cost: it is replayed, at about ten million actions a second and
// up to the most that planning tries. With tapes a run of steps may be one action; without, each step has its own.
double first_seconds(const StrategyRow& row, std::int64_t steps) {
  if (std::find(kShort.begin(), kShort.end(), row.name) != kShort.end()) return 0;
  const double actions = static_cast<double>(steps) * (row.keeps_tapes ? 1 : 6);
  return std::min(actions, 4e7) * 1e-7;
}

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

// Time of this thread's own work: a page says the same whatever else the machine does.
class Clock {
 public:
  double seconds() const { return now() - start_; }

 private:
  static double now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  double start_ = now();
};

bool can_answer(const StrategyRow& row, const PlanQuestion& question) {
  return !(row.needs_tier && question.platform.tiers.empty()) &&
         !(row.keeps_tapes && question.options.slots);
}

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
  Line(const PlanQuestion& question, const StrategyRow& row, Bytes near)
      : question_(question),
        options_(question.options),
        near_(near),
        expected_(first_seconds(row, question.chain.steps())) {
    options_.strategy = row.name;
    if (options_.strategy != question.options.strategy) {
      options_.intervals.clear();
      options_.period.reset();
    }
  }

  const std::string& strategy() const { return options_.strategy; }
  // Whether it needs more than all budgets that are drawn.
  bool is_beyond() const { return is_beyond_; }
  bool is_whole() const { return begun_ && next_ == budgets_.size(); }
  // The next point is taken to cost what the dearest one did.
  double expected() const { return expected_; }
  double taken() const { return taken_; }
  void expect(double seconds) {
    if (!begun_) expected_ = seconds;
  }
  void add(Bytes budget, double seconds) { points_.emplace_back(budget, seconds); }

  void find_one() {
    const Clock clock;
    if (!begun_) {
      begun_ = true;
      expected_ = 0;
      begin();
    }
    const double before = clock.seconds();
    if (next_ < budgets_.size()) {
      const Bytes budget = budgets_[next_++];
      if (const auto plan = plan_in(question_, options_, budget)) {
        points_.emplace_back(plan->machine.platform.fast, plan->prediction.seconds);
      }
    }
    expected_ = std::max(expected_, clock.seconds() - before);
    taken_ += clock.seconds();
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
    const Bytes all = options_.slots
                          ? scale_bytes(state, std::max<std::int64_t>(1, question_.chain.steps()))
                          : everything_bytes(question_.chain, options_);
    const Bytes most = std::min(all, scale_bytes(std::max(near_, state), kSpan));
    is_beyond_ = *least > most;
    if (is_beyond_) return;
    budgets_ = budgets_between(std::max(*least, std::min(near_ / kSpan, most)), most,
                               options_.slots ? state : 1, kPoints);
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
  bool begun_ = false, is_beyond_ = false;
  std::vector<Bytes> budgets_;  // in the order in which they are tried
  std::size_t next_ = 0;
  double expected_, taken_ = 0;
  std::vector<std::pair<Bytes, double>> points_;
};

// One point after another until `end`, each on the line that will have taken the least: cheap lines become
// whole, dear ones have a few points. `only`: that strategy's; empty: all.
void find_until(double end, const Clock& clock, std::span<Line> lines, std::string_view only = {}) {
  for (;;) {
    const double left = end - clock.seconds();
    // auto plans as all others do.
    const double all =
        std::accumulate(lines.begin(), lines.end(), 0.0, [](double sum, const Line& line) {
          return sum + (line.strategy() == "auto" ? 0 : line.expected());
        });
    Line* next = nullptr;
    for (Line& line : lines) {
      if (line.strategy() == "auto") line.expect(all);
      if (line.is_whole() || line.expected() > left) continue;
      if (!only.empty() && line.strategy() != only) continue;
      if (next == nullptr || line.taken() + line.expected() < next->taken() + next->expected())
        next = &line;
    }
    if (left <= 0 || next == nullptr) return;
    next->find_one();
  }
}

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
    const StrategyRow* const row = find_strategy(name);
    if (row == nullptr || !can_answer(*row, question)) return;
    if (std::any_of(lines.begin(), lines.end(), has_name)) return;
    lines.emplace_back(question, *row, near);
  };
  add(question.options.strategy);
  add("auto");
  add(plan.strategy);
  for (const StrategyRow& row : strategies()) add(row.name);
  find_until(limit / 2, clock, lines, plan.strategy);
  find_until(limit, clock, lines);
  for (Line& line : lines) {
    const bool chosen =
        line.strategy() == plan.strategy || line.strategy() == question.options.strategy;
    if (chosen && own != kUnlimited) line.add(own, plan.prediction.seconds);
  }
  Json found = Json::array(), left_out = Json::array(), beyond = Json::array();
  std::vector<Bytes> budgets;
  for (const Line& line : lines) {
    if (line.is_beyond()) beyond.push_back(line.strategy());
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
          {"left_out", left_out},
          {"beyond", beyond}};
}

}  // namespace ebb
