// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/train.h"

#include "ebb/train/checkpoint.h"
#include "ebb/train/trainer.h"

namespace ebb {

TrainResult train(const TrainOptions& options, const TrainSettings& settings, Ranks& ranks) {
  check_options(options);
  if (options.dtype == "double") return Trainer<double>(options, settings, ranks).run();
  return Trainer<float>(options, settings, ranks).run();
}

TrainOptions checkpoint_options(const std::filesystem::path& directory) {
  return options_from_json(load_checkpoint(directory).options, directory.string() + "/train.json");
}

}  // namespace ebb
