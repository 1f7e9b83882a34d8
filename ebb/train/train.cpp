// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/train.h"

#include <optional>
#include <utility>

#include "ebb/train/trainer.h"

namespace ebb {
namespace {

TrainResult train_from(const TrainOptions& options, const TrainSettings& settings, Ranks& ranks,
                       std::optional<Checkpoint> from) {
  check_options(options);
  if (options.dtype == "double") {
    return Trainer<double>(options, settings, ranks, std::move(from)).run();
  }
  return Trainer<float>(options, settings, ranks, std::move(from)).run();
}

}  // namespace

TrainResult train(const TrainOptions& options, const TrainSettings& settings, Ranks& ranks) {
  std::optional<Checkpoint> from;
  if (settings.resume) from = open_checkpoint(settings.out);
  return train_from(options, settings, ranks, std::move(from));
}

TrainResult train(const TrainOptions& options, const TrainSettings& settings, Ranks& ranks,
                  Checkpoint from) {
  return train_from(options, settings, ranks, std::move(from));
}

TrainOptions checkpoint_options(const Checkpoint& checkpoint,
                                const std::filesystem::path& directory) {
  return options_from_json(checkpoint.options, directory.string() + "/train.json");
}

TrainOptions checkpoint_options(const std::filesystem::path& directory) {
  return checkpoint_options(open_checkpoint(directory), directory);
}

}  // namespace ebb
