// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/plan_text.h"

#include <algorithm>
#include <array>
#include <ostream>
#include <string_view>
#include <vector>

#include "ebb/core/layout.h"
#include "ebb/core/units.h"
#include "ebb/plan/words.h"

namespace ebb {
namespace {

double per_step(std::int64_t count, std::int64_t steps) {
  return steps == 0 ? 0 : static_cast<double>(count) / static_cast<double>(steps);
}

std::string chain_text(const Chain& chain) {
  const StepCost step = chain.typical();
  const char* const each = chain.is_uniform() ? "" : "mean ";
  const char* const most = chain.is_uniform() ? "" : "largest ";
  std::string text = std::to_string(chain.steps()) + (chain.steps() == 1 ? " step; " : " steps; ");
  text += each + ("forward " + format_seconds(step.forward)) + ", record " +
          format_seconds(step.record) + ", backward " + format_seconds(step.backward) + "; ";
  return text + most + "state " + format_bytes(step.state) + ", tape " + format_bytes(step.tape);
}

std::string peak_text(Bytes peak, Bytes capacity) {
  if (capacity == kUnlimited) return format_bytes(peak) + ", no limit";
  std::string text = format_bytes(peak) + " of " + format_bytes(capacity);
  if (capacity > 0)
    text += " (" + format_percent(static_cast<double>(peak) / static_cast<double>(capacity)) + ")";
  return text;
}

void add_strategy(Lines& lines, const PlanAnswer& answer) {
  const Plan& plan = answer.plan;
  const StrategyRow* const row = find_strategy(plan.strategy);
  lines.add("strategy", strategy_text(plan, answer.options));
  if (row != nullptr && !row->paper.empty()) lines.add("strategy", std::string(row->paper));
  if (plan.optimal && row != nullptr && !row->optimal.empty()) {
    lines.add("strategy", std::string("optimal: ").append(row->optimal));
  }
  const std::string parameters = parameters_text(plan);
  if (!parameters.empty()) lines.add("parameters", parameters);
}

void add_time(Lines& lines, const PlanAnswer& answer) {
  const Plan& plan = answer.plan;
  const std::int64_t n = answer.chain.steps();
  lines.add("time", time_text(plan, answer.chain));
  lines.add("bound", bound_text(plan));
  if (!plan.bound.relaxation.empty()) lines.add("bound", "(" + plan.bound.relaxation + ")");
  lines.add("waiting", format_seconds(plan.prediction.stall_seconds) + " for transfers");
  lines.add("forwards", std::to_string(plan.prediction.forwards) + ", " +
                            format_number(per_step(plan.prediction.forwards, n)) + " per step (" +
                            std::to_string(plan.prediction.advances) + " advances, " +
                            std::to_string(plan.prediction.records) + " records)");
}

void add_memory(Lines& lines, const PlanAnswer& answer) {
  const Plan& plan = answer.plan;
  const Platform& platform = plan.machine.platform;
  const std::vector<Bytes>& peak = plan.prediction.peak;
  for (std::size_t i = 0; i < peak.size() && i <= platform.tiers.size(); ++i) {
    const std::string name = i == 0 ? "fast" : platform.tiers[i - 1].name;
    lines.add(
        "peak",
        name + ": " + peak_text(peak[i], i == 0 ? platform.fast : platform.tiers[i - 1].capacity));
  }
  for (std::size_t i = 0; i < plan.prediction.moved.size() && i < platform.tiers.size(); ++i) {
    const Prediction::Traffic& traffic = plan.prediction.moved[i];
    lines.add("moved", platform.tiers[i].name + ": " + format_bytes(traffic.written) +
                           " written, " + format_bytes(traffic.read) + " read");
  }
  lines.add("least budget", answer.least_budget
                                ? budget_text(*answer.least_budget, answer.options, answer.chain)
                                : "none works with these tiers");
}

}  // namespace

void write_summary(const PlanAnswer& answer, std::ostream& out) {
  const Bytes budget = answer.plan.machine.platform.fast;
  out << "It fits in "
      << (budget == kUnlimited ? "unlimited memory"
                               : budget_text(budget, answer.options, answer.chain))
      << ".\n\n";
  Lines lines(out);
  lines.add("chain", chain_text(answer.chain));
  add_strategy(lines, answer);
  add_time(lines, answer);
  add_memory(lines, answer);
  lines.add("plan", std::to_string(answer.plan.prediction.actions) + " actions, found in " +
                        format_seconds(answer.plan_seconds));
}

void write_sweep(const Chain& chain, const PlanOptions& options, std::span<const SweepPoint> points,
                 std::ostream& out) {
  std::vector<std::vector<std::string>> rows = {
      {"budget", "time", "gap", "forwards/step", "waiting", "strategy"}};
  for (const SweepPoint& point : points) {
    const Prediction& found = point.plan.prediction;
    rows.push_back({budget_text(point.budget, options, chain), format_seconds(found.seconds),
                    format_percent(point.plan.gap()),
                    format_number(per_step(found.forwards, chain.steps())),
                    format_seconds(found.stall_seconds), point.plan.strategy});
  }
  out << "  " << chain_text(chain) << "\n\n";
  write_table(rows, out);
}

void write_strategies(std::span<const StrategyRow> rows, std::ostream& out) {
  std::vector<std::vector<std::string>> table = {
      {"strategy", "algorithm", "tier", "what it does", "paper"}};
  for (const StrategyRow& row : rows) {
    std::string summary(row.summary);
    if (!row.optimal.empty()) summary.append("; optimal: ").append(row.optimal);
    table.push_back({std::string(row.name), std::string(row.algorithm),
                     row.needs_tier ? "needed" : "-", summary,
                     row.paper.empty() ? "-" : std::string(row.paper)});
  }
  write_table(table, out);
}

}  // namespace ebb
