// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "ebb/core/at.h"
#include "ebb/core/clock.h"
#include "ebb/core/error.h"
#include "ebb/device/device_memory.h"
#include "ebb/train/batch_targets.h"
#include "ebb/train/checkpoint.h"
#include "ebb/train/durable_file.h"
#include "ebb/train/model_tensors.h"
#include "ebb/train/tested.h"
#include "ebb/train/trained.h"
#include "ebb/train/training_device.h"

namespace ebb {
namespace {

TaskOptions task_of(const TrainOptions& options) {
  TaskOptions task;
  task.name = options.task;
  task.data = options.data;
  task.steps = options.steps;
  task.seed = options.seed;
  return task;
}

// What is called while processes wait for others, as long as this lives.
struct Waiting {
  Waiting(Ranks& all, std::function<void()> call) : ranks(all) {
    ranks.set_waiting(std::move(call));
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  ~Waiting() { ranks.set_waiting({}); }
  Ranks& ranks;
};

std::string words(const DataFingerprint& data) {
  return std::to_string(data.files) + (data.files == 1 ? " file of " : " files of ") +
         std::to_string(data.bytes) + " bytes";
}

// A checkpoint that somebody else saved may know nothing of its data.
void check_data(const DataFingerprint& before, const DataFingerprint& now) {
  if (before.files == 0 || before == now) return;
  const bool alike = before.files == now.files && before.bytes == now.bytes;
  throw Error(ErrorCode::invalid_argument,
              "the data are not those that the checkpoint was trained with: " +
                  (alike ? words(now) + " as before, with other content or under other names"
                         : "there were " + words(before) + ", there are " + words(now)),
              {},
              "give the same data, or continue with these by --data-changed-ok (data_changed_ok)");
}

void add_up(Ranks& ranks, Score& score) {
  std::array<double, 3> sums{score.loss, score.correct, score.targets};
  ranks.sum(sums);
  score = {sums[0], sums[1], sums[2]};
}

}  // namespace

template <class Number>
Trainer<Number>::Trainer(const TrainOptions& options, const TrainSettings& settings, Ranks& ranks,
                         std::optional<Checkpoint> from, bool plans_only)
    : options_(options),
      settings_(settings),
      ranks_(ranks),
      task_(make_task(task_of(options))),
      shape_(task_->shape()),
      sampler_(task_->samples(Split::train), options.seed) {
  began_ = seconds_now();
  if (from && options_.processes != ranks_.size()) {
    fail(ErrorCode::invalid_argument, "the checkpoint was trained by ", options_.processes,
         " processes; continue with as many, there are ", ranks_.size());
  }
  if (from && !settings_.data_changed_ok) check_data(from->data, task_->data());
  options_.processes = ranks_.size();
  if (!from && !settings_.out.empty() && std::filesystem::exists(settings_.out / "train.json")) {
    throw Error(ErrorCode::invalid_argument, settings_.out.string() + " holds a checkpoint already",
                {}, "resume it, or take another directory");
  }
  fill(Split::train, 0);
  const bool resumes = from.has_value();
  const bool any = parse_training_device(options_.device).kind == TrainingDevice::Kind::any;
  // One kind for all processes: their optimisers must do the same to the last bit.
  if (any && ranks_.any(!cuda_missing().empty())) options_.device = "cpu";
  LearnerSetup setup{options_, shape_, settings_.tiers, ranks_.rank(), ranks_.size()};
  setup.local_rank = ranks_.local_rank();
  setup.plans_only = plans_only;
  setup.resumes = resumes;
  learner_ = make_learner<Number>(setup, batch_);
  if (any) options_.device = learner_->is_elsewhere() ? "cuda" : "cpu";
  if (learner_->is_elsewhere()) options_.device_chunk = learner_->plan().chunk;
  if (from) restore(*from);
  from.reset();  // so that nothing holds its bytes beside training
  if (!settings_.out.empty() && ranks_.rank() == 0) {
    metrics_.emplace(settings_.out, resumes ? first_ : -1);
    std::error_code ignored;
    if (!resumes) std::filesystem::remove(settings_.out / "report.json", ignored);  // another run's
    earlier_ = metrics_->seconds();
  }
}

// With several processes all have to end at the same place: between iterations.
template <class Number>
std::stop_token Trainer<Number>::stop() const {
  return ranks_.size() > 1 ? std::stop_token() : settings_.stop;
}

template <class Number>
double Trainer<Number>::seconds() const {
  return seconds_now() - began_;
}

template <class Number>
std::int64_t Trainer<Number>::all_iterations() const {
  const std::int64_t iterations = asked_iterations();
  if (first_ <= iterations) return iterations;
  fail(ErrorCode::invalid_argument, "there are to be ", iterations, " iterations, but ", first_,
       " are done; give more to go on");
}

template <class Number>
std::int64_t Trainer<Number>::asked_iterations() const {
  if (options_.iterations > 0) return options_.iterations;
  if (options_.epochs == 0) return 1000;
  const std::int64_t samples = task_->samples(Split::train);
  if (samples == Task::kEndless) {
    fail(ErrorCode::invalid_argument, "epochs is ", options_.epochs, ", but the samples of task '",
         options_.task, "' never end; give iterations");
  }
  return std::max<std::int64_t>(1, options_.epochs * (samples / (options_.batch * ranks_.size())));
}

template <class Number>
void Trainer<Number>::fill(Split split, std::int64_t iteration) {
  task_->fill(split, sampler_.batch(iteration, options_.batch, ranks_.rank(), ranks_.size()),
              batch_);
  filled_ = split == Split::train ? iteration : -1;
}

template <class Number>
Metrics Trainer<Number>::iterate(std::int64_t iteration) {
  if (filled_ != iteration) fill(Split::train, iteration);
  std::array<double, 1> targets{BatchTargets(shape_, options_.batch, batch_).count()};
  ranks_.sum(targets);
  if (targets[0] == 0) {
    fail(ErrorCode::invalid_argument, "no target of the batch of iteration ", iteration, " counts");
  }
  learner_->learn(batch_, 1 / targets[0], static_cast<std::uint64_t>(iteration), stop());
  if (const auto wrong = learner_->planned_again(); wrong && settings_.planned_again) {
    settings_.planned_again(plan(), *wrong);
  }
  const std::int64_t iterations = all_iterations();
  if (learner_->is_elsewhere() && iteration + 1 < iterations) fill(Split::train, iteration + 1);
  Score score = learner_->score();
  add_up(ranks_, score);
  learner_->sum_gradient(ranks_);

  const double rate = options_.optimiser.lr * options_.schedule.at(iteration, iterations);
  whole_ = -1;
  const double norm = learner_->step(rate);
  Metrics metrics = metrics_of(shape_, iteration + 1, Split::train, score, earlier_ + seconds());
  if (!std::isfinite(norm) || !std::isfinite(metrics.loss)) {
    fail(ErrorCode::invalid_argument, "training diverged in iteration ", iteration + 1,
         ": the loss is ", metrics.loss, ", the gradient's norm ", norm, "; lower lr or set clip");
  }
  whole_ = iteration + 1;
  report_ = learner_->report();
  metrics.lr = rate;
  metrics.gradient_norm = norm;
  metrics.peak_bytes = report_.measured.peak.front();
  return metrics;
}

// Every process takes its share of the test samples. It is not stopped halfway: the checkpoint of its
// iteration could not tell that its line is missing.
template <class Number>
std::optional<Metrics> Trainer<Number>::test(std::int64_t iteration) {
  const std::int64_t samples = std::min(task_->samples(Split::test), options_.test_samples);
  if (samples <= 0) return {};
  Score all;
  const std::int64_t ranks = ranks_.size(), batch = options_.batch;
  for (std::int64_t from = 0; from < samples; from += batch * ranks) {
    fill_tested(*task_, Split::test, from + batch * ranks_.rank(), samples, batch, batch_);
    filled_ = -1;
    all += learner_->test(batch_);
  }
  add_up(ranks_, all);
  if (all.targets == 0) return {};
  return metrics_of(shape_, iteration, Split::test, all, earlier_ + seconds());
}

template <class Number>
void Trainer<Number>::tell(const Metrics& metrics) {
  if (metrics_) {
    unwritten_.push_back(metrics);
    const bool told = unwritten_.size() > 1;
    try {
      write_lines();
    } catch (const Error& error) {
      if (!goes_on_after(error)) throw;
      if (!told) settings_.save_failed(error.what());
    }
  }
  if (!settings_.line) return;
  TrainLine line;
  line.metrics = metrics;
  line.activity = learner_->activity();
  line.dropped_spikes = learner_->dropped_spikes();
  settings_.line(line);
}

template <class Number>
bool Trainer<Number>::goes_on_after(const Error& error) const {
  return error.code() == ErrorCode::io && settings_.save_failed;
}

template <class Number>
void Trainer<Number>::write_lines() {
  while (!unwritten_.empty()) {
    metrics_->append(unwritten_.front());
    unwritten_.pop_front();
  }
}

template <class Number>
TrainResult Trainer<Number>::run() {
  const std::int64_t iterations = all_iterations();
  if (settings_.planned) settings_.planned(plan());
  TrainResult result;
  result.iterations = whole_ = first_;
  saved_at_ = seconds();
  // Whoever ends all processes because of one gives the others a moment.
  const Waiting waiting(ranks_, [this] {
    if (settings_.stop.stop_requested()) save_whole();
  });
  try {
    for (std::int64_t i = first_; i < iterations; ++i) {
      if (ranks_.any(settings_.stop.stop_requested())) {
        result.stopped = true;
        break;
      }
      result.train = iterate(i);
      result.iterations = i + 1;
      tell(*result.train);
      const bool is_last = i + 1 == iterations;
      if (is_last || (options_.evaluate > 0 && (i + 1) % options_.evaluate == 0)) {
        result.test = test(i + 1);
        if (result.test) tell(*result.test);
      }
      if (is_last) {
        save(i + 1);
      } else if (seconds() - saved_at_ >= options_.save_seconds) {
        save_if_possible(i + 1);
      }
    }
  } catch (const Error& error) {
    // Parameters are those of the last whole iteration: a stop comes before they change.
    if (error.code() != ErrorCode::cancelled || ranks_.size() > 1) {
      try {
        save_whole();
        // NOLINTNEXTLINE(bugprone-empty-catch): the first one says what is wrong
      } catch (const Error&) {
      }
      throw;
    }
    result.stopped = true;
  }
  if (result.stopped) {
    save(result.iterations);
    ranks_.any(false);  // a process that ends first would have the launcher end this one
  }
  result.seconds = earlier_ + seconds();
  result.report = report_;
  return result;
}

template <class Number>
TrainPlan Trainer<Number>::plan() {
  return completed(learner_->plan());
}

template <class Number>
TrainPlan Trainer<Number>::plan_within(double slowdown) {
  return completed(learner_->plan_within(slowdown));
}

template <class Number>
TrainPlan Trainer<Number>::completed(TrainPlan plan) const {
  plan.shape = shape_;
  plan.iterations = all_iterations();
  plan.first = first_;
  plan.ranks = ranks_.size();
  plan.trained_on = trained_on_;
  if (!learner_->is_elsewhere()) plan.beside += batch_.bytes() + task_->bytes();
  return plan;
}

template <class Number>
void Trainer<Number>::save(std::int64_t iteration) {
  saved_at_ = seconds();
  if (!metrics_ || iteration == saved_) return;
  // Lines and a report that cannot be written are no reason to lose the parameters.
  std::optional<Error> unwritten;
  try {
    write_lines();
    metrics_->sync();
    if (!report_.strategy.empty()) replace_file(settings_.out / "report.json", report_.json());
  } catch (const Error& error) {
    unwritten = error;
  }
  learner_->fetch();
  Checkpoint checkpoint;
  checkpoint.iteration = iteration;
  checkpoint.seed = options_.seed;
  checkpoint.options = to_json(options_);
  checkpoint.data = task_->data();
  checkpoint.model = model_tensors(learner_->network(), options_.layers);
  checkpoint.notes = model_notes(options_, *task_, iteration);
  checkpoint.optimiser = learner_->optimiser().state();
  save_checkpoint(*settings_.lock, checkpoint);
  saved_ = iteration;
  if (unwritten) throw *unwritten;
}

template <class Number>
void Trainer<Number>::save_if_possible(std::int64_t iteration) {
  try {
    save(iteration);
  } catch (const Error& error) {
    if (!goes_on_after(error)) throw;
    settings_.save_failed(error.what());
  }
}

template <class Number>
void Trainer<Number>::save_whole() {
  if (whole_ >= 0) save(whole_);
}

template <class Number>
void Trainer<Number>::restore(const Checkpoint& from) {
  restore_model(learner_->network(), options_.layers, from.model);
  learner_->optimiser().restore(from.optimiser);
  learner_->restored();
  const std::string before = options_from_json(from.options, "the checkpoint").device;
  const bool was_elsewhere = parse_training_device(before).kind == TrainingDevice::Kind::cuda;
  if (was_elsewhere != learner_->is_elsewhere()) trained_on_ = before;
  first_ = from.iteration;
  saved_ = first_;
}

template class Trainer<float>;
template class Trainer<double>;

}  // namespace ebb
