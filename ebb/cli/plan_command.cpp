// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/plan_command.h"

#include <chrono>
#include <cmath>
#include <memory>
#include <ostream>
#include <string>

#include "ebb/cli/heading.h"
#include "ebb/cli/picture.h"
#include "ebb/cli/plan_request.h"
#include "ebb/cli/plan_text.h"
#include "ebb/cli/view_command.h"
#include "ebb/core/budget_words.h"
#include "ebb/core/error.h"
#include "ebb/core/json.h"
#include "ebb/core/units.h"
#include "ebb/plan/checkpoint_schedules.h"
#include "ebb/plan/text.h"
#include "ebb/view/document.h"

namespace ebb {
namespace {

constexpr const char* kPlanFooter = R"(
Sizes are bytes with an optional unit (64KiB, 1.5GiB, 4GB); times are seconds. The defaults are
the units of the literature: one second per step, one byte per state. --budget may also be a share
(5%) of the least that store_all needs for the chain, its working set included.

Output: a summary in words, with a picture for at most 100 steps; --json makes it one object;
--actions writes the actions instead, one JSON object per line; --json --actions writes both, the
summary first. Exit codes: 0 done, 2 bad usage or input, 3 does not fit (the message names the
least budget), 4 a file cannot be read.

Examples
  ebb plan --steps 1000 --budget 64MiB --state 1MiB --tape 4MiB --forward 2e-3 --backward 4e-3
  ebb plan --steps 1000 --budget 5% --state 1MiB --tape 4MiB
  ebb plan --steps 10 --strategy revolve --slots 3
  ebb plan --steps 1e6 --state 8MiB --tape 32MiB --forward 1e-3 --backward 2e-3 --platform laptop --budget 2GiB
  ebb plan --steps 225 --strategy h_revolve --slots 3 --tier disk:slots=100,write_time=20,read_time=20 --sync
  ebb plan --steps 500 --state 1MiB --tape 3MiB --sweep
  ebb plan --steps 50 --strategy revolve --slots 7 --format checkpoint_schedules
  ebb plan --steps 300 --state 1MiB --tape 4MiB --budget 60MiB --view plan.html
)";

void declare_chain(CLI::App& app, PlanWords& words) {
  Heading chain(app, "The chain");
  chain.option("--steps", words.step.steps, "N", "Number of steps N, 0 to 10^12");
  chain.option("--forward", words.step.forward, "SECONDS", "Time of one forward step; default 1");
  chain.option("--record", words.step.record, "SECONDS",
               "Time of a forward step that leaves its tape; default --forward");
  chain.option("--backward", words.step.backward, "SECONDS",
               "Time of one backward step; default 2");
  chain.option("--state", words.step.state, "BYTES",
               "Size of what restarts the computation at a step; default 1");
  chain.option("--tape", words.step.tape, "BYTES",
               "Size of all that the backward of one step needs; default 1");
  chain.option("--chain", words.chain, "FILE.json",
               "All of the above from a file, also with different steps");
}

void declare_memory(CLI::App& app, PlanWords& words) {
  Heading memory(app, "The memory");
  memory.option("--budget", words.options.budget, "BYTES",
                "Bytes allowed in fast memory, or a share of what keeping everything\n"
                "takes (5%); default the platform's, else no limit");
  memory.option("--slots", words.options.slots, "K",
                "Instead of --budget, the literature's accounting: fast memory holds\n"
                "K states, the initial one counted, and nothing else is charged");
  memory.option("--working", words.options.working, "BYTES",
                "Replaces the computed working set (live state, adjoint, scratch,\n"
                "one tape) by a constant");
  std::string presets;
  for (const std::string& name : preset_names()) presets += (presets.empty() ? "" : ", ") + name;
  memory.option("--platform", words.platform, "FILE.json|PRESET",
                "Fast memory and slow tiers from a file or a preset:\n" + presets);
  memory.options("--tier", words.tiers, "NAME:KEY=VALUE,...",
                 "A slow tier, after those of --platform, nearest first; repeat for\n"
                 "more. Keys: slots=K or capacity=BYTES; write=BYTES/s or write_time=s\n"
                 "(of one transfer); read or read_time; latency=s; duplex=no");
  memory.flag("--sync", words.sync, "No overlap: transfers and compute take turns");
}

void declare_strategy(CLI::App& app, PlanWords& words) {
  Heading strategy(app, "The strategy");
  strategy.option("--strategy", words.options.strategy, "NAME",
                  "The strategy; default auto, the fastest exact one that fits");
  strategy.option("--interval", words.options.intervals, "K[,k...]",
                  "Intervals, outermost first, instead of a search");
  strategy.option("--period", words.options.period, "K",
                  "Period of periodic_disk, instead of a search");
  strategy.flag("--strategies", words.strategies, "List the strategies and stop");
}

void declare_output(CLI::App& app, PlanWords& words) {
  Heading answer(app, "The answer");
  answer.flag("--json", words.json, "Machine-readable: one object; with --sweep one array");
  answer.flag("--actions", words.actions,
              "The actions as JSON lines; with --json after the summary");
  answer.option("--format", words.format, "FORMAT",
                "Vocabulary of the actions: ebb or checkpoint_schedules; implies\n--actions");
  answer.flag("--sweep", words.sweep,
              "Table of budget against time; with --slots K in slots, whatever K");
  answer.option("--view", words.view, "FILE.html",
                "Also write a page for a browser: schedule, memory, transfers,\n"
                "and time against budget");
  answer.flag("--largest", words.largest,
              "The longest chain of this step that fits; without --steps");
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void write_actions(const Plan& plan, std::ostream& out) {
  const auto cursor = plan.cursor();
  std::string block;
  for (Action action; cursor->next(action);) {
    block += to_json(action, plan.machine.platform);
    block += '\n';
    if (block.size() < (std::size_t{1} << 16)) continue;
    out << block;
    block.clear();
    if (!out) return;
  }
  out << block;
}

void answer_plan(const PlanWords& words, const PlanRequest& request, std::ostream& out) {
  if (words.view) check_page_path("--view", *words.view);
  const auto start = std::chrono::steady_clock::now();
  const Plan plan = make_plan(request.chain, request.platform, request.options);
  const double plan_seconds = seconds_since(start);
  const bool actions = words.actions || words.format;
  const std::int64_t steps = request.chain.steps();
  const bool translated = words.format == "checkpoint_schedules";
  // Before the summary is written.
  if (translated && words.json) check_checkpoint_schedules(plan, steps);
  if (words.json || words.view || !actions) {
    const auto least = least_budget(request.chain, request.platform, request.options);
    const PlanQuestion question{request.chain, request.platform, request.options};
    if (words.view) {
      write_page("--view", *words.view,
                 plan_page({.question = question, .plan = plan, .least = least}));
    }
    if (words.json) {
      out << to_json(plan, steps, plan_seconds, least, &question) << '\n';
    } else if (!actions) {
      write_summary({request.chain, request.options, plan, plan_seconds, least}, out);
      if (has_picture(plan, steps)) draw_picture(plan, steps, out << '\n');
    }
  }
  if (!actions) return;
  if (translated) {
    write_checkpoint_schedules(plan, steps, out);
  } else {
    write_actions(plan, out);
  }
}

void answer_sweep(const PlanWords& words, const PlanRequest& request, std::ostream& out) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<SweepPoint> points = sweep(request.chain, request.platform, request.options);
  const double each =
      points.empty() ? 0 : seconds_since(start) / static_cast<double>(points.size());
  if (points.empty()) {
    fail(ErrorCode::infeasible_budget, request.options.strategy,
         " fits in no budget on this platform; add a slow tier (--tier) or take another strategy "
         "(--strategy auto)");
  }
  if (!words.json) {
    write_sweep(request.chain, request.options, points, out);
    return;
  }
  out << '[';
  for (std::size_t i = 0; i < points.size(); ++i) {
    const std::string object =
        to_json(points[i].plan, request.chain.steps(), each, points.front().budget);
    out << (i == 0 ? "" : ",\n ") << "{\"budget\":" << points[i].budget << ',' << object.substr(1);
  }
  out << "]\n";
}

void answer_largest(const PlanWords& words, const PlanRequest& request, std::ostream& out) {
  const std::int64_t steps =
      largest_steps(request.chain.at(0), request.chain.call(), request.platform, request.options);
  const bool any = steps == kUnlimited;
  if (words.json) {
    out << "{\"strategy\":" << json_string(request.options.strategy)
        << ",\"largest_steps\":" << (any ? "null" : std::to_string(steps)) << "}\n";
  } else if (any) {
    out << request.options.strategy << " fits whatever the number of steps.\n";
  } else {
    out << request.options.strategy << " fits up to " << steps
        << (steps == 1 ? " step.\n" : " steps.\n");
  }
}

void answer_strategies(const PlanWords& words, std::ostream& out) {
  if (!words.json) {
    write_strategies(strategies(), out);
    return;
  }
  Json list = Json::array();
  for (const StrategyRow& row : strategies()) {
    list.push_back({{"name", row.name},
                    {"algorithm", row.algorithm},
                    {"summary", row.summary},
                    {"paper", row.paper},
                    {"optimal", row.optimal},
                    {"keeps_tapes", row.keeps_tapes},
                    {"needs_tier", row.needs_tier}});
  }
  out << list.dump() << '\n';
}

void answer(const PlanWords& words, std::ostream& out) {
  if (words.strategies) {
    if (words.view)
      fail(ErrorCode::invalid_argument, "--view is for one plan; leave out --strategies");
    answer_strategies(words, out);
    return;
  }
  const PlanRequest request = read_request(words);
  if (words.sweep) {
    answer_sweep(words, request, out);
  } else if (words.largest) {
    answer_largest(words, request, out);
  } else {
    try {
      answer_plan(words, request, out);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::infeasible_budget || !words.options.budget) throw;
      throw in_unit_of(*words.options.budget, everything_bytes(request.chain, request.options),
                       error);
    }
  }
}

}  // namespace

Command declare_plan(CLI::App& app) {
  const auto words = std::make_shared<PlanWords>();
  declare_chain(app, *words);
  declare_memory(app, *words);
  declare_strategy(app, *words);
  declare_output(app, *words);
  set_footer(app, kPlanFooter);
  return [words](std::ostream& out, std::ostream&) { answer(*words, out); };
}

}  // namespace ebb
