// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "ebb/core/at.h"
#include "ebb/core/clock.h"
#include "ebb/core/error.h"
#include "ebb/train/checkpoint.h"

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

Metrics metrics_of(const TaskShape& shape, std::int64_t iteration, Split split, const Score& score,
                   double seconds) {
  Metrics metrics;
  metrics.iteration = iteration;
  metrics.split = split;
  metrics.loss = score.loss / score.targets;
  if (shape.classes) {
    metrics.metric = "accuracy";
    metrics.value = score.correct / score.targets;
  }
  metrics.seconds = seconds;
  return metrics;
}

void add_up(Ranks& ranks, Score& score) {
  std::array<double, 3> sums{score.loss, score.correct, score.targets};
  ranks.sum(sums);
  score = {sums[0], sums[1], sums[2]};
}

}  // namespace

template <class Number>
Trainer<Number>::Trainer(const TrainOptions& options, const TrainSettings& settings, Ranks& ranks,
                         std::optional<Checkpoint> from)
    : options_(options),
      settings_(settings),
      ranks_(ranks),
      task_(make_task(task_of(options))),
      shape_(task_->shape()),
      sampler_(task_->samples(Split::train), options.seed),
      optimiser_(options.optimiser, 0) {
  began_ = seconds_now();
  if (from && options_.processes != ranks_.size()) {
    fail(ErrorCode::invalid_argument, "the checkpoint was trained by ", options_.processes,
         " processes; go on with as many, there are ", ranks_.size());
  }
  options_.processes = ranks_.size();
  if (!from && !settings_.out.empty() && std::filesystem::exists(settings_.out / "train.json")) {
    throw Error(ErrorCode::invalid_argument, settings_.out.string() + " holds a checkpoint already",
                {}, "resume it, or take another directory");
  }
  fill(Split::train, 0);
  run_.emplace(options_, shape_, settings_.tiers, ranks_.rank(), ranks_.size(), batch_);
  optimiser_ = Optimiser<Number>(options_.optimiser, run_->network().values().size());
  const bool resumes = from.has_value();
  if (from) restore(*from);
  from.reset();  // so that nothing holds its bytes beside training
  if (!settings_.out.empty() && ranks_.rank() == 0) {
    std::error_code error;
    std::filesystem::create_directories(settings_.out, error);
    if (error) {
      fail(ErrorCode::io, "cannot make the directory ", settings_.out.string(), ": ",
           error.message());
    }
    metrics_.emplace(settings_.out, resumes ? first_ : -1);
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
}

template <class Number>
Metrics Trainer<Number>::iterate(std::int64_t iteration) {
  fill(Split::train, iteration);
  std::array<double, 1> targets{run_->targets(batch_)};
  ranks_.sum(targets);
  if (targets[0] == 0) {
    fail(ErrorCode::invalid_argument, "no target of the batch of iteration ", iteration, " counts");
  }
  Score score = run_->learn(batch_, 1 / targets[0], static_cast<std::uint64_t>(iteration), stop());
  add_up(ranks_, score);
  ranks_.sum(run_->gradient());

  const std::span<Number> values = run_->network().values();
  // What does not learn must not decay either.
  std::vector<Number> fixed;
  for (const NetworkParameter& own : run_->network().layout()) {
    const std::span<Number> part = values.subspan(at(own.offset), at(own.size));
    if (!own.learns) fixed.insert(fixed.end(), part.begin(), part.end());
  }
  const double rate = options_.optimiser.lr * options_.schedule.at(iteration, all_iterations());
  const double norm = optimiser_.step(values, run_->gradient(), rate);
  auto next = fixed.begin();
  for (const NetworkParameter& own : run_->network().layout()) {
    if (own.learns) continue;
    std::copy_n(next, own.size, values.begin() + own.offset);
    next += own.size;
  }
  Metrics metrics = metrics_of(shape_, iteration + 1, Split::train, score, earlier_ + seconds());
  if (!std::isfinite(norm) || !std::isfinite(metrics.loss)) {
    fail(ErrorCode::invalid_argument, "training diverged in iteration ", iteration + 1,
         ": the loss is ", metrics.loss, ", the gradient's norm ", norm, "; lower lr or set clip");
  }
  report_ = run_->run().report();
  metrics.lr = rate;
  metrics.gradient_norm = norm;
  metrics.peak_bytes = report_.measured.peak.front();
  return metrics;
}

// Every process takes its share of the test samples; where they end within a batch the rest of it is
// the first sample without its target. It is not stopped halfway: the checkpoint of its iteration
// could not tell that its line is missing.
template <class Number>
std::optional<Metrics> Trainer<Number>::test(std::int64_t iteration) {
  const std::int64_t samples = std::min(task_->samples(Split::test), options_.test_samples);
  if (samples <= 0) return {};
  Score all;
  const std::int64_t ranks = ranks_.size(), batch = options_.batch;
  for (std::int64_t from = 0; from < samples; from += batch * ranks) {
    std::vector<std::int64_t> these(at(batch), 0);
    const std::int64_t own = from + batch * ranks_.rank();
    const std::int64_t here = std::clamp<std::int64_t>(samples - own, 0, batch);
    std::iota(these.begin(), these.begin() + here, own);
    task_->fill(Split::test, these, batch_);
    const std::int64_t times = shape_.every_step ? shape_.steps : 1;
    for (std::int64_t t = 0; t < times; ++t) {
      for (std::int64_t b = here; b < batch; ++b) {
        if (shape_.classes) {
          batch_.classes[at(t * batch + b)] = -1;
        } else {
          std::fill_n(batch_.targets.begin() + (t * batch + b) * shape_.outputs, shape_.outputs,
                      std::numeric_limits<float>::quiet_NaN());
        }
      }
    }
    all += run_->test(batch_);
  }
  add_up(ranks_, all);
  if (all.targets == 0) return {};
  return metrics_of(shape_, iteration, Split::test, all, earlier_ + seconds());
}

template <class Number>
void Trainer<Number>::tell(const Metrics& metrics) {
  if (metrics_) metrics_->append(metrics);
  if (!settings_.line) return;
  TrainLine line;
  line.metrics = metrics;
  line.activity = run_->activity();
  line.dropped_spikes = run_->dropped_spikes();
  settings_.line(line);
}

template <class Number>
TrainResult Trainer<Number>::run() {
  const std::int64_t iterations = all_iterations();
  if (first_ > iterations) {
    fail(ErrorCode::invalid_argument, "there are to be ", iterations, " iterations, but ", first_,
         " are done; give more to go on");
  }
  announce();
  TrainResult result;
  result.iterations = first_;
  saved_at_ = seconds();
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
        if ((result.test = test(i + 1))) tell(*result.test);
      }
      if (is_last || seconds() - saved_at_ >= options_.save_seconds) save(i + 1);
    }
  } catch (const Error& error) {
    // Parameters are those of the last whole iteration: a stop comes before they change.
    if (error.code() != ErrorCode::cancelled || ranks_.size() > 1) throw;
    result.stopped = true;
  }
  if (result.stopped) save(result.iterations);
  result.seconds = earlier_ + seconds();
  result.report = report_;
  return result;
}

template <class Number>
void Trainer<Number>::announce() {
  if (!settings_.planned) return;
  const Run& run = run_->run();
  Network<Number>& network = run_->network();
  TrainPlan plan;
  plan.shape = shape_;
  plan.iterations = all_iterations();
  plan.first = first_;
  plan.parameters = static_cast<std::int64_t>(network.values().size());
  plan.ranks = ranks_.size();
  plan.threads = network_of(options_, shape_, ranks_.rank(), ranks_.size()).threads;
  plan.steps = network.steps();
  plan.chunk = network.chunk();
  plan.windows = run_->windows();
  plan.strategy = run.plan().strategy;
  plan.prediction = run.plan().prediction;
  plan.peak = plan.prediction.peak.front();
  plan.planning = run.plan().tables;
  plan.plain = run_->plain_bytes();
  plan.budget = budget_bytes(options_, plan.plain);
  const StepCost& cost = run.chain().at(0);
  plan.plain_seconds = static_cast<double>(plan.steps) * (cost.record + cost.backward);
  plan.beside = run_->beside_bytes() + optimiser_.bytes() + batch_.bytes() + task_->bytes();
  for (const Tier& tier : run.platform().tiers) plan.tiers.push_back(tier.name);
  settings_.planned(plan);
}

template <class Number>
std::vector<TensorView> Trainer<Number>::model_tensors() {
  std::vector<TensorView> tensors;
  Network<Number>& network = run_->network();
  const std::string top = "_l" + std::to_string(options_.layers);
  for (const NetworkParameter& own : network.layout()) {
    std::string name = own.name;
    if (name.ends_with(top)) {  // as a torch.nn.Linear called readout has them
      name = "readout." + name.substr(0, name.size() - top.size());
      if (name == "readout.weight_ih") name = "readout.weight";
      if (name == "readout.bias_ih") name = "readout.bias";
    }
    const std::span<Number> part = network.values().subspan(at(own.offset), at(own.size));
    tensors.push_back(view_tensor<Number>(name, own.shape, part));
  }
  for (std::int64_t l = 0; l < options_.layers; ++l) {
    const auto add = [&](const char* weights, const Pattern* pattern) {
      if (pattern == nullptr) return;
      const std::string name = weights + std::to_string(l);
      tensors.push_back(view_tensor<std::int64_t>(
          name + ".starts", {static_cast<std::int64_t>(pattern->starts.size())}, pattern->starts));
      tensors.push_back(view_tensor<std::int32_t>(
          name + ".columns", {static_cast<std::int64_t>(pattern->columns.size())},
          pattern->columns));
    };
    add("weight_ih_l", network.input_pattern(l));
    add("weight_hh_l", network.recurrent_pattern(l));
  }
  return tensors;
}

template <class Number>
void Trainer<Number>::save(std::int64_t iteration) {
  saved_at_ = seconds();
  if (!metrics_ || iteration == saved_) return;
  metrics_->sync();
  Checkpoint checkpoint;
  checkpoint.iteration = iteration;
  checkpoint.seed = options_.seed;
  checkpoint.options = to_json(options_);
  checkpoint.model = model_tensors();
  checkpoint.optimiser = optimiser_.state();
  save_checkpoint(settings_.out, checkpoint);
  saved_ = iteration;
}

template <class Number>
void Trainer<Number>::restore(const Checkpoint& from) {
  for (const TensorView& own : model_tensors()) {
    if (own.type != tensor_type<Number>()) continue;  // a pattern, drawn again by the seed
    auto* const numbers = reinterpret_cast<Number*>(const_cast<std::byte*>(own.bytes.data()));
    const TensorView& saved = find_tensor(from.model, own.name);
    copy_tensor<Number>(saved, {numbers, own.bytes.size() / sizeof(Number)});
  }
  optimiser_.restore(from.optimiser);
  first_ = from.iteration;
  saved_ = first_;
}

template class Trainer<float>;
template class Trainer<double>;

}  // namespace ebb
