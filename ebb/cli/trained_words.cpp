// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/trained_words.h"

#include "ebb/core/words.h"
#include "ebb/core/workers.h"

namespace ebb {
namespace {

constexpr std::int64_t kMostAtATime = 65'535;

}  // namespace

std::int64_t TrainedWords::batch_size() const {
  return batch ? read_count("--batch", *batch, 1, kMostAtATime) : 0;
}

int TrainedWords::thread_count() const {
  return threads ? static_cast<int>(read_count("--threads", *threads, 1, Workers::kMost)) : 0;
}

void declare_run(CLI::App& app, TrainedWords& words) {
  Heading(app, "The net").argument("RUN", words.run, "Folder of a run, or its model.safetensors");
}

void declare_batch(Heading& heading, TrainedWords& words) {
  heading.option("--batch", words.batch, "B", "Sequences beside each other; default the run's");
}

void declare_threads(Heading& heading, TrainedWords& words) {
  heading.option("--threads", words.threads, "N", "Default the run's");
}

}  // namespace ebb
