// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/double_command.h"

#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "ebb/cli/device_double_command.h"
#include "ebb/cli/device_option.h"
#include "ebb/cli/double_words.h"
#include "ebb/cli/heading.h"
#include "ebb/cli/tier_option.h"
#include "ebb/cli/watched.h"
#include "ebb/core/words.h"
#include "ebb/core/workers.h"
#include "ebb/experiments/bench_net.h"
#include "ebb/experiments/double_bench.h"
#include "ebb/experiments/double_text.h"

namespace ebb {
namespace {

constexpr const char* kDoubleFooter = R"(
Checkpoints at two levels, in a small local memory and in a large slow one, let
a sparse spiking net learn from sequences more than 10 times as long, or with 4
times the units, at little more time (Bencheikh, Finkbeiner, Neftci 2024). The
experiment takes a budget of local memory over RAM, then over a file, runs plain
backpropagation, single_local, single_remote, double and auto, and shows
  (a) the longest sequence that fits, (b) what 10 times the steps cost, with
  transfers hidden behind compute and in turn with it, (c) time against length,
  (d) the largest net, (e) time and bytes moved against activity,
  (f) sensitivity to the slow memory's bandwidth (predicted alone),
predicted and measured. Every gradient is compared with plain's, bit for bit.

)";

constexpr const char* kDoubleFooterEnd = R"(Each is tried alone, under the budget. Ctrl-C cancels.

On a GPU the budget is of its memory, the slow memory is pinned memory of the
host, and the net has no readout. It shows (a) to (d), and says of auto whether
10 times the length, 4 times the units and 1.1 times the time are met. Left out:
  )";

constexpr const char* kDoubleFooterExamples = R"(

Exit codes: 0 done, 2 bad usage or no such device, 3 the budget is too small,
4 a tier or the device fails, 130 cancelled.

Examples
  ebb bench double
  ebb bench double --device cuda --density 10
  ebb bench double --quick --json
  ebb bench double --quick --view double.html
  ebb bench double --budget 4MiB --hidden 2048 --tier nvme:file=/scratch
)";

// Left out.
struct DoubleDefaults {
  const char* input;
  const char* hidden;
  const char* batch;
  const char* budget;
  const char* longer;
  const char* rates;
  const char* repeat;
  double profile_seconds;
  std::int64_t most_searched;
};
constexpr DoubleDefaults kUsualDouble = {"64",          "512", "8", "2MiB", "2,5,10,20,50",
                                         "1,2,5,10,20", "3",   0.3, 1024};
constexpr DoubleDefaults kQuickDouble = {"64", "256", "8", "1MiB", "10,40", "2,10", "2", 0.05, 64};
constexpr const char* kDensity = "10";
constexpr const char* kRate = "5";
constexpr const char* kScale = "20";
constexpr const char* kChunk = "4";

DoubleSetup read_words(const DoubleWords& words) {
  refuse_options_of("cuda", {{"--cell", words.cell.has_value()},
                             {"--number", words.number.has_value()},
                             {"--host-budget", words.host_budget.has_value()}});
  const DoubleDefaults& usual = words.quick ? kQuickDouble : kUsualDouble;
  const auto count = [](const char* option, const std::optional<std::string>& word,
                        const char* otherwise, std::int64_t most, std::int64_t least = 1) {
    return read_count(option, word.value_or(otherwise), least, most);
  };
  const auto percent = [&](const char* option, const std::optional<std::string>& word,
                           const char* otherwise) {
    return static_cast<double>(count(option, word, otherwise, 100)) / 100;
  };
  DoubleSetup setup;
  setup.input = count("--input", words.input, usual.input, kMostUnits);
  setup.hidden = count("--hidden", words.hidden, usual.hidden, kMostUnits);
  setup.batch = count("--batch", words.batch, usual.batch, kMostBatch);
  setup.chunk = count("--chunk", words.chunk, kChunk, kMostSteps);
  setup.density = percent("--density", words.density, kDensity);
  setup.rate = percent("--rate", words.rate, kRate);
  setup.weight_scale =
      static_cast<double>(count("--weight-scale", words.scale, kScale, kMostWeightScale));
  setup.budget = read_size("--budget", words.budget.value_or(usual.budget), 1, kUnlimited - 1);
  if (words.steps) setup.steps = count("--steps", words.steps, "", kMostSteps);
  setup.longer = read_counts("--longer", words.longer.value_or(usual.longer), 1, kMostLonger);
  setup.rates = read_counts("--rates", words.rates.value_or(usual.rates), 1, 100);
  setup.threads = static_cast<int>(count("--threads", words.threads, "1", Workers::kMost, 0));
  setup.repeat = static_cast<int>(count("--repeat", words.repeat, usual.repeat, 1000));
  setup.profile_seconds = usual.profile_seconds;
  setup.most_searched = usual.most_searched;
  std::vector<std::string> tiers = words.tiers;
  if (tiers.empty()) tiers = {"ram:memory", temporary_tier()};
  setup.tiers = parse_real_tiers(tiers);
  return setup;
}

void answer(const DoubleWords& words, std::ostream& out, std::ostream& err) {
  check_bench_output(words.output);
  if (const std::optional<int> device = read_device(words.device))
    return answer_device_double(words, *device, out, err);
  DoubleSetup setup = read_words(words);
  const DoubleResults results = watched(setup, err, run_double_bench);
  write_bench(words.output,
              {.json = [&] { return double_json(setup, results); },
               .csv = [&](std::ostream& to) { write_double_csv(results, to); },
               .text = [&](std::ostream& to) { write_double(setup, results, to); }},
              out);
}

void declare_net(CLI::App& app, DoubleWords& words) {
  Heading device(app, "The device");
  declare_device(device, words.device);
  Heading net(app, "The net");
  net.option("--input", words.input, "I", by_default("Inputs, which spike", kUsualDouble.input));
  net.option("--hidden", words.hidden, "H", by_default("Units, lif neurons", kUsualDouble.hidden));
  net.option("--batch", words.batch, "B", by_default("Sequences at a time", kUsualDouble.batch));
  net.option("--density", words.density, "P",
             by_default("Percent of the recurrent weights that are\nthere", kDensity));
  net.option("--rate", words.rate, "P",
             by_default("Percent of inputs that spike in a time\nstep", kRate));
  net.option("--weight-scale", words.scale, "K",
             by_default("Times the usual initial weights: more is more\nactivity", kScale));
  net.option("--chunk", words.chunk, "K",
             by_default("Time steps that plans count as one step", kChunk));
  net.option("--threads", words.threads, "N",
             "0: one for each processor; default 1, which leaves\nothers to transfers");
  net.option("--cell", words.cell, "NAME", "On a GPU: lif, alif or adlif; default lif");
  net.option("--number", words.number, "TYPE", "On a GPU: bf16, f16, tf32 or f32; default bf16");
}

}  // namespace

Command declare_double(CLI::App& app) {
  const auto words = std::make_shared<DoubleWords>();
  declare_net(app, *words);
  Heading memory(app, "The memory");
  memory.option("--budget", words->budget, "BYTES",
                by_default("Bytes of local memory", kUsualDouble.budget));
  memory.options("--tier", words->tiers, "NAME:KIND,...",
                 "A slow memory of this machine; repeat for more,\n"
                 "each is tried alone. Default ram:memory, then\n"
                 "disk:file= with the directory for temporary files");
  memory.option("--host-budget", words->host_budget, "BYTES",
                "On a GPU: bytes of the host's memory for states");
  Heading axes(app, "The axes");
  axes.option("--steps", words->steps, "T",
              "Time steps of plain, where fewer are wanted than\nfit the budget");
  axes.option("--longer", words->longer, "K[,K...]",
              by_default("Lengths of (c), times that of\nplain", kUsualDouble.longer));
  axes.option("--rates", words->rates, "P[,P...]",
              by_default("Rates of (e), in percent", kUsualDouble.rates));
  axes.option(
      "--repeat", words->repeat, "R",
      by_default("The best of R runs and of R measurements of the\nstep", kUsualDouble.repeat));
  axes.flag("--quick", words->quick, "A smaller net and fewer points: some seconds");
  declare_bench_output(app, words->output, "one object, a series for each table");
  set_footer(app, kDoubleFooter + real_tier_sentence() + kDoubleFooterEnd +
                      device_double_defaults() + kDoubleFooterExamples);
  return [words](std::ostream& out, std::ostream& err) { answer(*words, out, err); };
}

}  // namespace ebb
