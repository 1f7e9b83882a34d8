// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/train.h"

#include <optional>
#include <utility>

#include "ebb/core/error.h"
#include "ebb/train/checkpoint_index.h"
#include "ebb/train/trainer.h"

namespace ebb {
namespace {

// Trains with the right to settings.out, which it takes unless the caller has it.
class Owned {
 public:
  Owned(const TrainSettings& settings, bool resumes, Ranks& ranks) : settings_(settings) {
    if (settings_.lock == nullptr) {
      if (!settings_.out.empty()) settings_.lock = &lock_.emplace(settings_.out, resumes, ranks);
    } else if (settings_.lock->directory() != settings_.out) {
      fail(ErrorCode::invalid_argument, "the lock is of '", settings_.lock->directory().string(),
           "', but out is '", settings_.out.string(), "'; give that of out, or none");
    }
  }

  bool took_it() const { return lock_.has_value(); }

  TrainResult train(const TrainOptions& options, Ranks& ranks, std::optional<Checkpoint> from) {
    if (options.dtype == "double") {
      return Trainer<double>(options, settings_, ranks, std::move(from)).run();
    }
    return Trainer<float>(options, settings_, ranks, std::move(from)).run();
  }

 private:
  TrainSettings settings_;
  std::optional<RunLock> lock_;
};

}  // namespace

TrainResult train(const TrainOptions& options, const TrainSettings& settings, Ranks& ranks) {
  check_options(options);
  Owned owned(settings, settings.resume, ranks);
  std::optional<Checkpoint> from;
  if (settings.resume) from = load_checkpoint(settings.out);
  return owned.train(options, ranks, std::move(from));
}

TrainResult train(const TrainOptions& options, const TrainSettings& settings, Ranks& ranks,
                  Checkpoint from) {
  check_options(options);
  Owned owned(settings, false, ranks);
  if (owned.took_it() && saved_iteration(settings.out).value_or(from.iteration) != from.iteration) {
    fail(ErrorCode::io, "another run has gone on from the checkpoint in '", settings.out.string(),
         "' since it was loaded, at iteration ", from.iteration, "; load it again");
  }
  return owned.train(options, ranks, std::move(from));
}

TrainOptions checkpoint_options(const Checkpoint& checkpoint,
                                const std::filesystem::path& directory) {
  return options_from_json(checkpoint.options, directory.string() + "/train.json");
}

TrainOptions checkpoint_options(const std::filesystem::path& directory) {
  return checkpoint_options(load_checkpoint(directory), directory);
}

}  // namespace ebb
