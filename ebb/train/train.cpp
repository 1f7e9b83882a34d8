// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/train.h"

#include <cmath>
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

std::optional<Checkpoint> checkpoint_of(const TrainSettings& settings) {
  if (!settings.resume) return {};
  return open_checkpoint(settings.out);
}

// Calls use(trainer) with one that leaves files and the plan's memory alone.
template <class Use>
TrainPlan with_planner(const TrainOptions& options, TrainSettings settings, Ranks& ranks,
                       std::optional<Checkpoint> from, Use use) {
  check_options(options);
  settings.out.clear();
  if (options.dtype == "double") {
    return use(Trainer<double>(options, settings, ranks, std::move(from), true));
  }
  return use(Trainer<float>(options, settings, ranks, std::move(from), true));
}

TrainPlan plan_from(const TrainOptions& options, const TrainSettings& settings, Ranks& ranks,
                    std::optional<Checkpoint> from) {
  return with_planner(options, settings, ranks, std::move(from),
                      [](auto&& trainer) { return trainer.plan(); });
}

TrainPlan find_from(TrainOptions options, const TrainSettings& settings, Ranks& ranks,
                    double slowdown, std::optional<Checkpoint> from) {
  if (!(slowdown >= 1) || !std::isfinite(slowdown)) {
    fail(ErrorCode::invalid_argument, "slowdown is ", slowdown,
         "; it must be 1 or more, such as 1.2 for a fifth more time than keeping everything");
  }
  options.budget = "unlimited";
  return with_planner(options, settings, ranks, std::move(from),
                      [slowdown](auto&& trainer) { return trainer.plan_within(slowdown); });
}

}  // namespace

TrainResult train(const TrainOptions& options, const TrainSettings& settings, Ranks& ranks) {
  check_options(options);
  Owned owned(settings, settings.resume, ranks);
  return owned.train(options, ranks, checkpoint_of(settings));
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

TrainPlan plan_training(const TrainOptions& options, const TrainSettings& settings, Ranks& ranks) {
  return plan_from(options, settings, ranks, checkpoint_of(settings));
}

TrainPlan plan_training(const TrainOptions& options, const TrainSettings& settings, Ranks& ranks,
                        Checkpoint from) {
  return plan_from(options, settings, ranks, std::move(from));
}

TrainPlan find_budget(const TrainOptions& options, const TrainSettings& settings, Ranks& ranks,
                      double slowdown) {
  return find_from(options, settings, ranks, slowdown, checkpoint_of(settings));
}

TrainPlan find_budget(const TrainOptions& options, const TrainSettings& settings, Ranks& ranks,
                      double slowdown, Checkpoint from) {
  return find_from(options, settings, ranks, slowdown, std::move(from));
}

TrainOptions checkpoint_options(const Checkpoint& checkpoint,
                                const std::filesystem::path& directory) {
  return options_from_json(checkpoint.options, directory.string() + "/train.json");
}

TrainOptions checkpoint_options(const std::filesystem::path& directory) {
  return checkpoint_options(open_checkpoint(directory), directory);
}

}  // namespace ebb
