// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/sample_command.h"

#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

#include "ebb/cli/heading.h"
#include "ebb/cli/interrupt.h"
#include "ebb/cli/trained_words.h"
#include "ebb/core/error.h"
#include "ebb/core/words.h"
#include "ebb/train/sample.h"

namespace ebb {
namespace {

constexpr const char* kSampleFooter = R"(
RUN is the folder of ebb train --task text --out, or its model.safetensors. What
is written, byte for byte, is the text given and the bytes that the net adds.
The same seed gives the same bytes. Without a text it begins as if after the
end of a line. The text must not contain bytes that the training text did not.

Exit codes: 0 done, 2 bad usage, 4 a file fails, 130 stopped.

Examples
  ebb sample run --text "ROMEO:" --length 500 --temperature 0.8
  ebb sample run --length 1e6 --seed 7 -o text.txt
)";

struct SampleWords {
  TrainedWords net;
  std::string text;
  std::optional<std::string> length, temperature, seed, out;
};

SampleOptions options_of(const SampleWords& words) {
  constexpr std::int64_t any = std::numeric_limits<std::int64_t>::max();
  SampleOptions options;
  options.text = words.text;
  if (words.length) options.length = read_count("--length", *words.length, 0, any);
  if (words.seed)
    options.seed = static_cast<std::uint64_t>(read_count("--seed", *words.seed, 0, any));
  options.threads = words.net.thread_count();
  if (words.temperature) options.temperature = read_number("--temperature", *words.temperature);
  return options;
}

void write_sample(const TrainedModel& model, const SampleOptions& options, std::ostream& to) {
  std::string first = options.text;  // not before it is known to be good
  sample(model, options, [&](char byte) {
    to << std::exchange(first, {}) << byte;
    if (byte == '\n') to.flush();
  });
  to << first;
}

void answer(const SampleWords& words, std::ostream& out) {
  SampleOptions options = options_of(words);
  const Interrupt interrupt;
  options.stop = interrupt.token();
  const TrainedModel model = load_trained(words.net.run);
  if (!words.out) {
    write_sample(model, options, out);
    return;
  }
  std::ofstream file(*words.out, std::ios::binary);
  if (file) write_sample(model, options, file);
  file.close();
  if (!file) fail(ErrorCode::io, "--out: the file '", shown(*words.out), "' cannot be written");
}

}  // namespace

Command declare_sample(CLI::App& app) {
  const auto words = std::make_shared<SampleWords>();
  declare_run(app, words->net);
  Heading text(app, "The text");
  text.option("--text", words->text, "TEXT", "The text to continue");
  text.option("--length", words->length, "N", "Bytes to add; default 500");
  text.option(
      "--temperature", words->temperature, "F",
      "1 (default): as likely as the net says; less:\nmore of what is likely; 0: the likeliest");
  text.option("--seed", words->seed, "N", "Of the draws; default 1");
  Heading work(app, "The work");
  declare_threads(work, words->net);
  Heading output(app, "The answer");
  output.option("-o,--out", words->out, "FILE", "Default the standard output");
  set_footer(app, kSampleFooter);
  return [words](std::ostream& out, std::ostream&) { answer(*words, out); };
}

}  // namespace ebb
