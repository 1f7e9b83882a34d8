// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/predict_command.h"

#include <memory>
#include <optional>
#include <ostream>
#include <string>

#include "ebb/cli/heading.h"
#include "ebb/cli/interrupt.h"
#include "ebb/cli/trained_words.h"
#include "ebb/core/error.h"
#include "ebb/core/json.h"
#include "ebb/core/units.h"
#include "ebb/core/words.h"
#include "ebb/train/predict.h"

namespace ebb {
namespace {

constexpr const char* kPredictFooter = R"(
RUN is the folder of ebb train --out, or its model.safetensors.

--data is a NumPy array: sequences [N,T,I], or a single one [T,I]; if the net
has one input, also [N,T]. Its numbers are what the net reads, as its task
prepared them for training; for a net on spikes they are 0 and 1. Input is read
and output written piece by piece: memory depends neither on T nor on N.

Outputs are [N,T,O] if the task has a target at every step, otherwise [N,O],
those of the last step; for a single sequence, the same without N. For classes
they are the logits.

Exit codes: 0 done, 2 bad usage or data, 4 a file fails, 130 stopped.

Examples
  ebb predict run --data x.npy -o y.npy
  ebb predict run --data x.npy -o classes.npy --classes
  ebb predict run/model.safetensors --data long.npy -o y.npy --every-step
)";

struct PredictWords {
  TrainedWords net;
  std::optional<std::string> data, out;
  bool every_step = false, last = false, classes = false, json = false;
};

PredictOptions options_of(const PredictWords& words) {
  PredictOptions options;
  if (!words.data) fail(ErrorCode::invalid_argument, "--data is missing; name an .npy file");
  if (!words.out) fail(ErrorCode::invalid_argument, "--out is missing; name an .npy file");
  if (words.every_step && words.last) {
    fail(ErrorCode::invalid_argument, "--every-step and --last are both given; give one of them");
  }
  options.data = *words.data;
  options.out = *words.out;
  if (words.every_step || words.last) options.every_step = words.every_step;
  options.classes = words.classes;
  options.batch = words.net.batch_size();
  options.threads = words.net.thread_count();
  return options;
}

void answer(const PredictWords& words, std::ostream& out) {
  PredictOptions options = options_of(words);
  const Interrupt interrupt;
  options.stop = interrupt.token();
  const TrainedModel model = load_trained(words.net.run);
  const PredictResult result = predict(model, options);
  if (words.json) {
    Json json{{"out", *words.out},
              {"shape", result.shape},
              {"dtype", result.dtype},
              {"seconds", result.seconds}};
    if (!model.classes.empty()) json["classes"] = model.classes;
    out << json.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
    return;
  }
  out << *words.out << ": [";
  for (std::size_t i = 0; i < result.shape.size(); ++i) {
    out << (i == 0 ? "" : ",") << result.shape[i];
  }
  out << "] of " << result.dtype << ", in " << format_seconds(result.seconds) << '\n';
}

}  // namespace

Command declare_predict(CLI::App& app) {
  const auto words = std::make_shared<PredictWords>();
  declare_run(app, words->net);
  Heading files(app, "The files");
  files.option("--data", words->data, "X.npy", "Sequences");
  files.option("-o,--out", words->out, "Y.npy", "Where the outputs go");
  Heading outputs(app, "The outputs");
  outputs.flag("--every-step", words->every_step, "Of every time step");
  outputs.flag("--last", words->last, "Of the last time step");
  outputs.flag("--classes", words->classes, "The number of the likeliest class, as int64");
  Heading work(app, "The work");
  declare_batch(work, words->net);
  declare_threads(work, words->net);
  Heading output(app, "The answer");
  output.flag("--json", words->json, "Machine-readable: one object");
  set_footer(app, kPredictFooter);
  return [words](std::ostream& out, std::ostream&) { answer(*words, out); };
}

}  // namespace ebb
