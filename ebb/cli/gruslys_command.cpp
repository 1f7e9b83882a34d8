// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/gruslys_command.h"

#include <memory>
#include <optional>
#include <ostream>
#include <string>

#include "ebb/cli/device_gruslys_command.h"
#include "ebb/cli/device_option.h"
#include "ebb/cli/gruslys_words.h"
#include "ebb/cli/heading.h"
#include "ebb/cli/watched.h"
#include "ebb/core/words.h"
#include "ebb/core/workers.h"
#include "ebb/experiments/bench_net.h"
#include "ebb/experiments/gruslys_bench.h"
#include "ebb/experiments/gruslys_text.h"

namespace ebb {
namespace {

constexpr const char* kGruslysFooter = R"(
Backpropagation through time in a small part of the memory that keeping
everything needs (Gruslys, Munos, Danihelka, Lanctot, Graves 2016: 95 % less for
a third more time at 1000 steps). The experiment runs an lstm and shows, beside
plain backpropagation (store_all) and Chen's square root rule (sqrt),
  (a) time and memory of auto in parts of plain memory,
  (b) time per time step against the sequence's length, in budgets that stay,
predicted and measured. What runs side by side runs in turn, and the best of
several runs counts. Every gradient is compared with store_all's, bit for bit.

On a GPU what is left out is
  )";

constexpr const char* kGruslysFooterEnd = R"(

Ctrl-C cancels. Exit codes: 0 done, 2 bad usage or no such device, 4 the device
fails, 130 cancelled.

Examples
  ebb bench gruslys
  ebb bench gruslys --device cuda --memory 2,5
  ebb bench gruslys --quick --json
  ebb bench gruslys --quick --view gruslys.html
  ebb bench gruslys --hidden 256 --batch 100 --memory 2,5 --lengths 1000,10000
)";

// Left out.
struct GruslysDefaults {
  const char* input;
  const char* hidden;
  const char* batch;
  const char* steps;
  const char* memory;
  const char* lengths;
  const char* budgets;
  const char* repeat;
  double profile_seconds;
};
constexpr GruslysDefaults kUsualGruslys = {
    "8", "128", "50", "1000", "1,2,5,10", "100,300,1000,3000", "5,10,20", "3", 0.5};
constexpr GruslysDefaults kQuickGruslys = {"8",       "64",   "20", "400", "2,5,10",
                                           "100,400", "5,20", "3",  0.1};

GruslysSetup read_words(const GruslysWords& words) {
  refuse_options_of("cuda", {{"--number", words.number.has_value()}});
  const GruslysDefaults& usual = words.quick ? kQuickGruslys : kUsualGruslys;
  const auto count = [](const char* option, const std::optional<std::string>& word,
                        const char* otherwise, std::int64_t least, std::int64_t most) {
    return read_count(option, word.value_or(otherwise), least, most);
  };
  const auto counts = [](const char* option, const std::optional<std::string>& word,
                         const char* otherwise, std::int64_t most) {
    return read_counts(option, word.value_or(otherwise), 1, most);
  };
  GruslysSetup setup;
  setup.input = count("--input", words.input, usual.input, 1, kMostUnits);
  setup.hidden = count("--hidden", words.hidden, usual.hidden, 1, kMostUnits);
  setup.batch = count("--batch", words.batch, usual.batch, 1, kMostBatch);
  setup.steps = count("--steps", words.steps, usual.steps, 2, kMostSteps);
  setup.chunk = count("--chunk", words.chunk, "0", 0, kMostSteps);
  setup.memory = counts("--memory", words.memory, usual.memory, 100);
  setup.lengths = counts("--lengths", words.lengths, usual.lengths, kMostSteps);
  setup.budgets = counts("--budgets", words.budgets, usual.budgets, 100);
  setup.threads = static_cast<int>(count("--threads", words.threads, "0", 0, Workers::kMost));
  setup.repeat = static_cast<int>(count("--repeat", words.repeat, usual.repeat, 1, 1000));
  setup.profile_seconds = usual.profile_seconds;
  return setup;
}

void answer(const GruslysWords& words, std::ostream& out, std::ostream& err) {
  check_bench_output(words.output);
  if (const std::optional<int> device = read_device(words.device))
    return answer_device_gruslys(words, *device, out, err);
  GruslysSetup setup = read_words(words);
  const GruslysResults results = watched(setup, err, run_gruslys_bench);
  write_bench(words.output,
              {.json = [&] { return gruslys_json(setup, results); },
               .csv = [&](std::ostream& to) { write_gruslys_csv(results, to); },
               .text = [&](std::ostream& to) { write_gruslys(setup, results, to); }},
              out);
}

}  // namespace

Command declare_gruslys(CLI::App& app) {
  const auto words = std::make_shared<GruslysWords>();
  Heading device(app, "The device");
  declare_device(device, words->device);
  Heading net(app, "The net");
  net.option("--input", words->input, "I", by_default("Inputs", kUsualGruslys.input));
  net.option("--hidden", words->hidden, "H", by_default("Units of the lstm", kUsualGruslys.hidden));
  net.option("--batch", words->batch, "B", by_default("Sequences at a time", kUsualGruslys.batch));
  net.option("--chunk", words->chunk, "K",
             "Time steps that plans count as one step; default\nchosen from the other sizes");
  net.option("--threads", words->threads, "N", "Default one for each processor");
  net.option("--number", words->number, "TYPE", "On a GPU: bf16, f16, tf32 or f32; default bf16");
  Heading axes(app, "The axes");
  axes.option(
      "--steps", words->steps, "T",
      by_default("Time steps of (a), which percents of memory refer\nto", kUsualGruslys.steps));
  axes.option("--memory", words->memory, "P[,P...]",
              by_default("Percents of plain memory of (a)", kUsualGruslys.memory));
  axes.option("--lengths", words->lengths, "T[,T...]",
              by_default("Time steps of (b)", kUsualGruslys.lengths));
  axes.option("--budgets", words->budgets, "P[,P...]",
              by_default("Percents of plain memory of (b)", kUsualGruslys.budgets));
  axes.option("--repeat", words->repeat, "R",
              "The best of R runs and of R measurements of the\nstep; default 3");
  axes.flag("--quick", words->quick, "A smaller net and fewer points: a few seconds");
  declare_bench_output(app, words->output, "one object with two series");
  set_footer(app, kGruslysFooter + device_gruslys_defaults() + kGruslysFooterEnd);
  return [words](std::ostream& out, std::ostream& err) { answer(*words, out, err); };
}

}  // namespace ebb
