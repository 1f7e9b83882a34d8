// SPDX-License-Identifier: Apache-2.0
#include "bench/plan_one.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <variant>

#include "ebb/plan/strategies.h"

namespace ebb::bench {
namespace {

struct Counted {
  std::int64_t actions = 0, forwards = 0, written = 0, read = 0;

  void operator()(const Advance& a) { forwards += a.to - a.from; }
  void operator()(const Record& a) { forwards += a.to - a.from; }
  void operator()(const Reverse&) {}
  void operator()(const Copy& a) {
    written += a.to.is_slow() ? 1 : 0;
    read += a.from.is_slow() ? 1 : 0;
  }
  void operator()(const Drop&) {}
};

Counted count(const Plan& plan) {
  Counted counted;
  const auto cursor = plan.cursor();
  for (Action action = Advance{0, 0}; cursor->next(action); ++counted.actions) {
    std::visit(counted, action);
  }
  return counted;
}

}  // namespace

int plan_one(int argc, char** argv) {
  CLI::App app("One plan, measured: units of one byte, transfers and compute take turns.", "one");
  PlanOptions options;
  std::int64_t steps = 1;
  std::optional<std::int64_t> disk;
  StepCost step;
  double write = 0;
  double read = 0;
  app.add_option("--strategy", options.strategy)->required();
  app.add_option("--steps", steps)->required();
  app.add_option("--slots", options.slots, "states in fast");
  app.add_option("--budget", options.budget, "bytes in fast beside the tape in use");
  app.add_option("--forward", step.forward);
  app.add_option("--backward", step.backward);
  app.add_option("--disk", disk, "states in a slow tier");
  app.add_option("--write", write, "seconds to write a state there");
  app.add_option("--read", read, "seconds to read one");
  CLI11_PARSE(app, argc, argv);
  step.record = step.forward;
  options.sync = true;
  if (options.budget) options.working = 0;
  Platform platform;
  if (disk) {
    Tier tier;
    tier.name = "disk";
    tier.capacity = *disk;
    tier.write_latency = write;
    tier.read_latency = read;
    platform.tiers.push_back(tier);
  }
  const Chain chain = Chain::uniform(steps, step);
  Counted counted;
  const double seconds =
      least_seconds([&] { counted = count(make_plan(chain, platform, options)); });
  const double cost = static_cast<double>(counted.forwards) * step.forward +
                      static_cast<double>(steps) * step.backward +
                      static_cast<double>(counted.written) * write +
                      static_cast<double>(counted.read) * read;
  const Json out{{"seconds", seconds},           {"actions", counted.actions},
                 {"forwards", counted.forwards}, {"written", counted.written},
                 {"read", counted.read},         {"cost", cost}};
  std::puts(out.dump().c_str());
  return 0;
}

}  // namespace ebb::bench
