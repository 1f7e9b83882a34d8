// SPDX-License-Identifier: Apache-2.0
// The planner's speed and the quality of its plans, as tables: `plan_bench [--json]`. Goals are
// those of docs/results.md. `plan_bench one …` measures one plan for the comparison with other
// packages (plan.py).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "bench/measure.h"
#include "bench/plan_one.h"
#include "bench/table.h"
#include "ebb/core/error.h"
#include "ebb/plan/replay.h"
#include "ebb/plan/strategies.h"

namespace ebb::bench {
namespace {

constexpr std::int64_t kMillion = 1'000'000;
constexpr double kMostSeconds = 1;
constexpr double kMostMib = 200;
constexpr double kAnyMib = 1e9;

// Five steps pass while one state is written.
Platform with_disk(Bytes capacity = kUnlimited) {
  Tier tier;
  tier.name = "disk";
  tier.capacity = capacity;
  tier.write_rate = 200;
  tier.read_rate = 300;
  Platform platform;
  platform.tiers = {tier};
  return platform;
}

StepCost step_of(Bytes state, Bytes tape) {
  StepCost step;
  step.state = state;
  step.tape = tape;
  step.adjoint = state;
  return step;
}

struct Case {
  Chain chain = Chain::uniform(0, {});
  Platform platform;
  PlanOptions options;
};

// The chain with a budget of that many percent of what keeping every tape needs.
Case case_of(std::string_view strategy, std::int64_t steps, const StepCost& step,
             const Platform& platform, double percent) {
  Case c{Chain::uniform(steps, step), platform, {}};
  c.options.strategy = "store_all";
  const Bytes all = *least_budget(c.chain, c.platform, c.options);
  c.options.strategy = strategy;
  c.options.budget = static_cast<Bytes>(static_cast<double>(all) * percent / 100);
  return c;
}

std::string percent_text(double percent) { return number_text(percent) + " %"; }

Json facts(const Plan& plan, std::int64_t steps) {
  const auto n = static_cast<double>(steps);
  return {{"forwards/step", static_cast<double>(plan.prediction.forwards) / n},
          {"seconds/step", plan.prediction.seconds / n},
          {"gap %", std::round(1e5 * plan.gap()) / 1e3},
          {"actions", plan.prediction.actions},
          {"optimal", plan.optimal ? "yes" : "-"}};
}

// A plan that takes longer is given up.
constexpr double kPatience = 20;

// Plans in a process of its own: CPU seconds, peak memory, what came out.
Json planned(const Case& c) {
  const Child child = in_child(
      [&c] {
        Case asked = c;
        std::string note;
        try {
          Plan plan;
          const double seconds = least_seconds(
              [&] {
                try {
                  plan = make_plan(asked.chain, asked.platform, asked.options);
                } catch (const Error& error) {
                  if (!error.least_budget() || !note.empty()) throw;
                  asked.options.budget = error.least_budget();
                  note =
                      "does not fit; at its least budget, " + format_bytes(*asked.options.budget);
                  plan = make_plan(asked.chain, asked.platform, asked.options);
                }
              },
              3);
          Json out{{"seconds", seconds}};
          out.update(facts(plan, asked.chain.steps()));
          if (plan.strategy != asked.options.strategy) note = "took " + plan.strategy;
          out["note"] = note;
          return out;
        } catch (const Error& error) {
          return Json{{"note", error.what()}};
        }
      },
      kPatience);
  Json out =
      child.result.value_or(Json{{"note", "no end within " + number_text(kPatience) + " s"}});
  out["MiB"] = child.peak_mib;
  return out;
}

Json row_of(const Json& head, const Json& result) {
  Json row = head;
  for (const char* key :
       {"seconds", "MiB", "forwards/step", "seconds/step", "gap %", "actions", "optimal"}) {
    row[key] = result.value(key, Json());
  }
  return row;
}

using Judge = std::function<std::string(const Json& result)>;

Judge within(double most_seconds, double most_mib) {
  const std::string asked = "< " + number_text(most_seconds) + " s" +
                            (most_mib < kAnyMib ? ", " + number_text(most_mib) + " MiB" : "");
  return [=](const Json& result) {
    return goal(
        result.contains("seconds") && result["seconds"] < most_seconds && result["MiB"] < most_mib,
        asked);
  };
}

std::string exact(const Json& result) {
  return goal(result.value("optimal", "") == "yes", "exact");
}
std::string no_goal(const Json&) { return "-"; }

void add_planned(Table& table, const Json& head, const Case& c, const Judge& judge) {
  const Json result = planned(c);
  Json row = row_of(head, result);
  row["goal"] = judge(result);
  row["note"] = result["note"];
  table.add(std::move(row));
}

Table million_steps() {
  Table table("Every strategy, 10^6 uniform steps: plan, prediction and bound");
  for (const double percent : {1.0, 10.0}) {
    for (const StrategyRow& row : strategies()) {
      const Case c = case_of(row.name, kMillion, step_of(1000, 5000), with_disk(), percent);
      add_planned(table, {{"strategy", row.name}, {"budget", percent_text(percent)}}, c,
                  within(kMostSeconds, kMostMib));
    }
  }
  return table;
}

Table billion_steps() {
  Table table(
      "revolve, 10^9 uniform steps (too many actions to replay: predicted by closed forms)");
  for (const std::int64_t slots : {10, 100, 1000, 4000, 100'000}) {
    Case c{Chain::uniform(1000 * kMillion, {}), {}, {}};
    c.options.strategy = "revolve";
    c.options.slots = slots;
    add_planned(table, {{"slots", slots}}, c, within(kMostSeconds, kMostMib));
  }
  return table;
}

Table exact_tables() {
  Table table("Dynamic programmes, 10^4 uniform steps, transfers and compute taking turns");
  constexpr std::int64_t steps = 10'000;
  const auto add = [&](const char* name, Bytes tape, const char* disk, double percent) {
    Case c = case_of(name, steps, step_of(1000, tape),
                     with_disk(*disk == '-' ? kUnlimited : 100'000), percent);
    c.options.sync = true;
    const bool tiers =
        tape == 5000 && std::string_view(name).find("revolve") != std::string_view::npos;
    add_planned(table,
                {{"strategy", name},
                 {"tape/state", tape / 1000},
                 {"disk slots", disk},
                 {"budget", percent_text(percent)}},
                c, tiers ? Judge(exact) : Judge(no_goal));
  };
  for (const double percent : {0.1, 1.0, 10.0}) {
    add("msm", 5000, "-", percent);
    add("msm", 1000, "-", percent);
    add("mixed", 1000, "-", percent);
    add("h_revolve", 5000, "100", percent);
    add("disk_revolve", 5000, "-", percent);
  }
  return table;
}

Table different_steps() {
  Table table("chain, 1000 different steps, 1000 units of memory");
  for (const unsigned seed : {1U, 2U, 3U}) {
    std::mt19937 random(seed);
    const auto draw = [&random](int least, int most) {
      return Bytes{least} + static_cast<Bytes>(random() % static_cast<unsigned>(most));
    };
    std::vector<StepCost> steps(1000);
    for (StepCost& step : steps) {
      step.forward = step.record = 0.1 * static_cast<double>(draw(5, 20));
      step.backward = 2 * step.forward;
      step.state = draw(1, 8);
      step.tape = 2 * step.state + draw(4, 40);
      step.adjoint = step.state;
    }
    Case c{Chain::of(steps), {}, {}};
    c.options.strategy = "chain";
    c.options.budget = 1000;
    add_planned(table, {{"seed", seed}}, c, within(2, kAnyMib));
  }
  return table;
}

Table cursor_speed() {
  Table table("Cursor and replay, million actions a second");
  struct Row {
    const char* strategy;
    std::int64_t steps;
    double percent;
  };
  for (const Row& row :
       {Row{"revolve", kMillion, 1}, Row{"revolve", kMillion, 10}, Row{"async", kMillion, 1},
        Row{"async", kMillion, 10}, Row{"msm", 10'000, 1}, Row{"msm", 10'000, 10}}) {
    const Case c = case_of(row.strategy, row.steps, step_of(1000, 5000), with_disk(), row.percent);
    const Plan plan = make_plan(c.chain, c.platform, c.options);
    const std::int64_t times = std::max<std::int64_t>(1, kMillion / plan.prediction.actions);
    // Kept so that the loop is not optimised away.
    volatile std::int64_t sum = 0;
    const double walking = least_seconds([&] {
      for (std::int64_t i = 0; i < times; ++i) {
        const auto cursor = plan.cursor();
        std::int64_t kinds = 0;
        for (Action action = Advance{0, 0}; cursor->next(action);) {
          kinds += static_cast<std::int64_t>(action.index());
        }
        sum = sum + kinds;
      }
    });
    const double replaying = least_seconds([&] {
      for (std::int64_t i = 0; i < times; ++i) replay(c.chain, plan.machine, *plan.cursor());
    });
    const double millions = 1e-6 * static_cast<double>(times * plan.prediction.actions);
    table.add({{"strategy", row.strategy},
               {"steps", row.steps},
               {"budget", percent_text(row.percent)},
               {"actions", plan.prediction.actions},
               {"cursor M/s", millions / walking},
               {"cursor + replay M/s", millions / replaying},
               {"goal", goal(millions / walking >= 20, "cursor >= 20 M/s")}});
  }
  return table;
}

Table gaps() {
  Table table("Certified gaps of auto, 1000 uniform steps");
  constexpr std::int64_t steps = 1000;
  for (const Bytes tape : {5000, 1000}) {
    for (const bool disk : {false, true}) {
      for (const double percent : {1.0, 2.0, 5.0, 10.0}) {
        const Case c =
            case_of("auto", steps, step_of(1000, tape), disk ? with_disk() : Platform{}, percent);
        Json row{{"tape/state", tape / 1000},
                 {"slow tier", disk ? "yes" : "no"},
                 {"budget", percent_text(percent)}};
        try {
          const Plan plan = make_plan(c.chain, c.platform, c.options);
          const Json found = facts(plan, steps);
          row["strategy"] = plan.strategy;
          row["forwards/step"] = found["forwards/step"];
          row["seconds/step"] = found["seconds/step"];
          row["bound/step"] = plan.bound.seconds / static_cast<double>(steps);
          row["gap %"] = found["gap %"];
          row["the bound rests on"] = plan.bound.relaxation;
        } catch (const Error& error) {
          row["strategy"] = error.what();
        }
        table.add(std::move(row));
      }
    }
  }
  return table;
}

int all_tables(bool as_json) {
  int met = 0;
  int missed = 0;
  Json out = Json::array();
  for (Table (*make)() :
       {million_steps, billion_steps, exact_tables, different_steps, cursor_speed, gaps}) {
    const Table table = make();
    met += table.count("met");
    missed += table.count("missed");
    if (as_json) {
      out.push_back(table.json());
    } else {
      std::fputs(table.text().c_str(), stdout);
      std::fflush(stdout);
    }
  }
  if (as_json) {
    std::puts(Json{{"tables", out}, {"goals", {{"met", met}, {"missed", missed}}}}.dump(1).c_str());
  } else {
    std::printf("Goals: %d met, %d missed.\n", met, missed);
  }
  return 0;
}

int run(int argc, char** argv) {
  const std::string_view word = argc > 1 ? argv[1] : "";
  if (word == "one") return plan_one(argc - 1, argv + 1);
  if (argc == 1 || (argc == 2 && word == "--json")) return all_tables(argc == 2);
  std::fputs("plan_bench [--json]    all tables\nplan_bench one --help  one plan\n", stderr);
  return 2;
}

}  // namespace
}  // namespace ebb::bench

int main(int argc, char** argv) {
  try {
    return ebb::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "plan_bench: %s\n", error.what());
    return 1;
  }
}
