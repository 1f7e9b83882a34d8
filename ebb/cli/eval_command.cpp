// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/eval_command.h"

#include <limits>
#include <memory>
#include <optional>
#include <ostream>
#include <string>

#include "ebb/cli/heading.h"
#include "ebb/cli/interrupt.h"
#include "ebb/cli/trained_words.h"
#include "ebb/core/error.h"
#include "ebb/core/json.h"
#include "ebb/core/layout.h"
#include "ebb/core/units.h"
#include "ebb/core/words.h"
#include "ebb/train/evaluate.h"

namespace ebb {
namespace {

constexpr const char* kEvalFooter = R"(
RUN is the folder of ebb train --out, or its model.safetensors. With nothing
else given the answer is that of the test at the end of training: bit for bit
if that was on the CPU, to rounding if it was on a GPU.
Apart from the batch itself, memory does not depend on the length of
sequences.

Exit codes: 0 done, 2 bad usage or data, 4 a file fails, 130 stopped.

Examples
  ebb eval run
  ebb eval run --samples all --json
  ebb eval run --data other-folder --split train --samples 5000
)";

struct EvalWords {
  TrainedWords net;
  std::string split = "test";
  std::optional<std::string> data, samples;
  bool json = false;
};

EvaluateOptions options_of(const EvalWords& words) {
  EvaluateOptions options;
  options.data = words.data.value_or("");
  if (words.split != "test" && words.split != "train") {
    fail(ErrorCode::invalid_argument, "--split is '", shown(words.split),
         "'; it must be test or train");
  }
  if (words.split == "train") options.split = Split::train;
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  if (words.samples) {
    options.samples =
        words.samples == "all" ? most : read_count("--samples", *words.samples, 1, most);
  }
  options.batch = words.net.batch_size();
  options.threads = words.net.thread_count();
  return options;
}

void answer(const EvalWords& words, std::ostream& out) {
  EvaluateOptions options = options_of(words);
  const Interrupt interrupt;
  options.stop = interrupt.token();
  const TrainedModel model = load_trained(words.net.run);
  const Evaluation found = evaluate(model, options);
  const Metrics& metrics = found.metrics;
  if (words.json) {
    Json json{{"task", model.options.task}, {"iteration", metrics.iteration},
              {"split", words.split},       {"samples", found.samples},
              {"targets", found.targets},   {"loss", metrics.loss}};
    if (!metrics.metric.empty()) json[metrics.metric] = metrics.value;
    json["seconds"] = metrics.seconds;
    out << json.dump() << '\n';
    return;
  }
  Lines lines(out);
  lines.add("net", model.options.layer.cell + ", task " + model.options.task + ", after " +
                       std::to_string(metrics.iteration) + " iterations");
  lines.add(words.split, std::to_string(found.samples) + " samples, " +
                             format_number(found.targets) + " targets, in " +
                             format_seconds(metrics.seconds));
  lines.add("loss", format_number(metrics.loss));
  if (!metrics.metric.empty()) lines.add(metrics.metric, format_percent(metrics.value));
}

}  // namespace

Command declare_eval(CLI::App& app) {
  const auto words = std::make_shared<EvalWords>();
  declare_run(app, words->net);
  Heading samples(app, "The samples");
  samples.option("--data", words->data, "DIR",
                 "Where the task's files are; default where they\nwere in training");
  samples.option("--split", words->split, "NAME", "test (default) or train");
  samples.option("--samples", words->samples, "N",
                 "At most, or all; default as many as training\ntested");
  declare_batch(samples, words->net);
  declare_threads(samples, words->net);
  Heading output(app, "The answer");
  output.flag("--json", words->json, "Machine-readable: one object");
  set_footer(app, kEvalFooter);
  return [words](std::ostream& out, std::ostream&) { answer(*words, out); };
}

}  // namespace ebb
