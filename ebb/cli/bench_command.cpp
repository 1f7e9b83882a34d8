// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/bench_command.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "ebb/cli/async_words.h"
#include "ebb/cli/device_async_command.h"
#include "ebb/cli/device_option.h"
#include "ebb/cli/double_command.h"
#include "ebb/cli/gruslys_command.h"
#include "ebb/cli/heading.h"
#include "ebb/cli/tier_option.h"
#include "ebb/cli/watched.h"
#include "ebb/core/error.h"
#include "ebb/core/words.h"
#include "ebb/experiments/async_bench.h"
#include "ebb/experiments/async_bench_text.h"
#include "ebb/experiments/stencil_step.h"

namespace ebb {
namespace {

constexpr const char* kBenchFooter = R"(
Experiments run real steps on this machine; beside each measured number stands
the one predicted.
  ebb bench async --help       options of an experiment
  ebb bench gruslys --quick    a look at it in some seconds
  ebb bench gruslys --quick --view page.html    the same as charts
)";

constexpr const char* kAsyncFooter = R"(
Asynchronous checkpointing (Kukreja, Hueckelheim, Gorman 2018) writes states to
a slow tier behind the computation and reads them ahead of the way back. Time
per step then does not grow with the number of steps, where that of Revolve
does. The experiment runs async, revolve (in fast memory alone), disk_revolve
and h_revolve (transfers and compute take turns, as published), store_all and
auto in the same fast memory, and shows time per step and memory
  (a) against the number of steps,
  (b) for async against the interval between the states it writes,
  (c) against the ratio of a state's transfer to a forward step, which the
      number of sweeps in a step changes,
predicted and measured. The steps are those of a nonlinear heat equation with
its adjoint.

)";

constexpr const char* kAsyncFooterEnd =
    R"(
On a GPU the steps are those of an lstm and the tier is pinned memory of the
host. It shows (a) against keeping everything in the GPU's memory, and (b)
against the chunk, a shorter one of which leaves room for states. Left out:
  )";

constexpr const char* kAsyncFooterExamples = R"(

Ctrl-C cancels. Exit codes: 0 done, 2 bad usage or no such device, 3 no strategy
fits, 4 a tier or the device fails, 130 cancelled.

Examples
  ebb bench async
  ebb bench async --device cuda --hidden 1024 --budget 256MiB
  ebb bench async --quick --json
  ebb bench async --quick --view async.html
  ebb bench async --state 16MiB --steps 100,1000 --tier nvme:file=/scratch
)";

// Left out.
struct AsyncDefaults {
  const char* state;
  const char* sweeps;
  const char* steps;
  const char* interval;
  const char* vary_sweeps;
  const char* repeat;
  double profile_seconds;
};
constexpr AsyncDefaults kUsualAsync = {
    "256KiB", "8", "100,200,500,1000", "1,2,5,10,20,50,100", "1,4,16", "3", 0.3};
constexpr AsyncDefaults kQuickAsync = {"256KiB", "8", "20,60", "2,5,20", "2,16", "3", 0.05};

AsyncSetup read_async(const AsyncWords& words) {
  refuse_options_of("cuda", {{"--number", words.number.has_value()},
                             {"--input", words.input.has_value()},
                             {"--hidden", words.hidden.has_value()},
                             {"--batch", words.batch.has_value()},
                             {"--chunks", words.chunks.has_value()},
                             {"--host-budget", words.host_budget.has_value()}});
  const AsyncDefaults& usual = words.quick ? kQuickAsync : kUsualAsync;
  const auto counts = [](const char* option, const std::optional<std::string>& word,
                         const char* otherwise, std::int64_t most) {
    return read_counts(option, word.value_or(otherwise), 1, most);
  };
  AsyncSetup setup;
  setup.cells = StencilStep::cells_in(read_size("--state", words.state.value_or(usual.state),
                                                StencilStep::kLeastState, StencilStep::kMostState));
  setup.sweeps =
      read_count("--sweeps", words.sweeps.value_or(usual.sweeps), 1, StencilStep::kMostSweeps);
  setup.steps = counts("--steps", words.steps, usual.steps, StencilStep::kMostSteps);
  setup.intervals = counts("--interval", words.interval, usual.interval, StencilStep::kMostSteps);
  const std::int64_t last = setup.steps.back();  // the steps that (b) runs
  if (words.interval && *std::ranges::max_element(setup.intervals) > last) {
    fail(ErrorCode::invalid_argument, "--interval is '", *words.interval, "'; it must be up to ",
         last, ", the last of --steps");
  }
  std::erase_if(setup.intervals, [last](std::int64_t k) { return k > last; });
  setup.vary_sweeps =
      counts("--vary-sweeps", words.vary_sweeps, usual.vary_sweeps, StencilStep::kMostSweeps);
  if (words.budget) setup.budget = read_size("--budget", *words.budget, 0, kUnlimited);
  setup.repeat =
      static_cast<int>(read_count("--repeat", words.repeat.value_or(usual.repeat), 1, 1000));
  setup.profile_seconds = usual.profile_seconds;
  std::vector<std::string> tiers = words.tiers;
  if (tiers.empty()) tiers = {temporary_tier()};
  setup.tiers = parse_real_tiers(tiers);
  return setup;
}

void answer_async(const AsyncWords& words, std::ostream& out, std::ostream& err) {
  check_bench_output(words.output);
  if (const std::optional<int> device = read_device(words.device))
    return answer_device_async(words, *device, out, err);
  AsyncSetup setup = read_async(words);
  const AsyncResults results = watched(setup, err, run_async_bench);
  write_bench(words.output,
              {.json = [&] { return async_json(setup, results); },
               .csv = [&](std::ostream& to) { write_async_csv(results, to); },
               .text = [&](std::ostream& to) { write_async(setup, results, to); }},
              out);
}

Command declare_async(CLI::App& app) {
  const auto words = std::make_shared<AsyncWords>();
  Heading device(app, "The device");
  declare_device(device, words->device);
  Heading step(app, "The step");
  step.option("--state", words->state, "BYTES",
              "Size of a state; default " + std::string(kUsualAsync.state));
  step.option("--sweeps", words->sweeps, "K",
              "Sweeps over the state in each step: compute per\n"
              "byte; default 8");
  Heading net(app, "The net, on a GPU: an lstm");
  net.option("--input", words->input, "I", "Inputs; default 64");
  net.option("--hidden", words->hidden, "H", "Units; default 512");
  net.option("--batch", words->batch, "B", "Sequences at a time; default 64");
  net.option("--number", words->number, "TYPE", "bf16, f16, tf32 or f32; default bf16");
  Heading memory(app, "The memory");
  memory.option("--budget", words->budget, "BYTES",
                "Bytes of fast memory; default the working set and\n"
                "10 states");
  memory.option("--host-budget", words->host_budget, "BYTES",
                "On a GPU: bytes of the host's memory for states");
  memory.options("--tier", words->tiers, "NAME:KIND,...",
                 "A slow tier of this machine, nearest first; repeat\n"
                 "for more. Default disk:file= with the directory\n"
                 "for temporary files");
  Heading axes(app, "The axes");
  axes.option("--steps", words->steps, "N[,N...]",
              "Numbers of steps of (a), the last one also of (b)\n"
              "and (c); default " +
                  std::string(kUsualAsync.steps));
  axes.option("--interval", words->interval, "K[,K...]",
              "Intervals of (b); default " + std::string(kUsualAsync.interval));
  axes.option("--vary-sweeps", words->vary_sweeps, "K[,K...]",
              "Sweeps of (c); default " + std::string(kUsualAsync.vary_sweeps));
  axes.option("--chunks", words->chunks, "K[,K...]",
              "On a GPU: time steps that plans of (b) count as\none step");
  axes.option("--repeat", words->repeat, "R",
              "The best of R runs and of R measurements of the\nstep; default 3");
  axes.flag("--quick", words->quick, "Fewer points: a few seconds");
  declare_bench_output(app, words->output, "one object with three series");
  set_footer(app, kAsyncFooter + real_tier_sentence() + kAsyncFooterEnd + device_async_defaults() +
                      kAsyncFooterExamples);
  return [words](std::ostream& out, std::ostream& err) { answer_async(*words, out, err); };
}

}  // namespace

Command declare_bench(CLI::App& app) {
  set_footer(app, kBenchFooter);
  return declare_subcommands(
      app, {{"async", "Asynchronous checkpointing (Kukreja et al. 2018)", declare_async},
            {"gruslys", "A small part of the memory (Gruslys et al. 2016)", declare_gruslys},
            {"double", "Two levels of memory (Bencheikh et al. 2024)", declare_double}});
}

}  // namespace ebb
