// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/evaluate.h"

#include <algorithm>

#include "ebb/core/at.h"
#include "ebb/core/clock.h"
#include "ebb/core/error.h"
#include "ebb/train/forward.h"
#include "ebb/train/tested.h"

namespace ebb {
namespace {

constexpr std::int64_t kBlock = 64;

std::unique_ptr<Task> tested_task(const TrainedModel& model, const EvaluateOptions& options) {
  TaskOptions task;
  task.name = model.options.task;
  task.data = options.data.empty() ? model.options.data : options.data;
  task.steps = model.options.steps;
  task.seed = model.options.seed;
  task.symbols = model.symbols;
  task.only = options.split;
  return make_task(task);
}

// Data may have other lengths, and fewer classes, than those of training.
void check_shape(const TrainedModel& model, const TaskShape& found) {
  const TaskShape& own = model.shape;
  const auto refuse = [&](const char* what, const auto& theirs, const auto& wanted) {
    fail(ErrorCode::invalid_argument, "the data have ", what, theirs, "; ", model.name,
         " was trained on ", wanted);
  };
  const auto kind = [](const TaskShape& shape) {
    return std::string(shape.classes ? "classes" : "numbers to predict") +
           (shape.every_step ? " at every step" : " at the end");
  };
  if (found.spikes != own.spikes) {
    refuse("", found.spikes ? "spikes" : "numbers", own.spikes ? "spikes" : "numbers");
  }
  if (found.inputs != own.inputs) refuse("inputs of ", found.inputs, own.inputs);
  if (kind(found) != kind(own)) refuse("", kind(found), kind(own));
  const bool fits = own.classes ? found.outputs <= own.outputs : found.outputs == own.outputs;
  if (!fits) refuse(own.classes ? "classes: " : "targets: ", found.outputs, own.outputs);
}

std::int64_t samples_of(const TrainedModel& model, const EvaluateOptions& options,
                        const Task& task) {
  const std::int64_t asked = options.samples.value_or(model.options.test_samples);
  const std::int64_t there = task.samples(options.split);
  if (asked < 1 || there == 0) {
    fail(ErrorCode::invalid_argument, "there is nothing to evaluate: ", asked,
         " samples are asked for, the ", options.split == Split::train ? "training" : "test",
         " set has ", there == Task::kEndless ? "any number" : std::to_string(there));
  }
  return there == Task::kEndless ? asked : std::min(asked, there);
}

// The batch's inputs, time step after time step, as a Forward reads them.
template <class Number>
void give_inputs(Forward<Number>& net, const Batch& batch, std::int64_t steps, std::int64_t size,
                 std::vector<Number>& row, std::vector<std::uint64_t>& words) {
  const std::int64_t inputs = net.network().inputs();
  row.assign(at(size * inputs), Number{0});
  words.assign(at(size * words_of(inputs)), 0);
  if (!batch.spikes.empty()) {
    net.network().set_spikes(
        {words.size(), [&, steps](std::int64_t t) {
           const std::int64_t from = net.first() + t;
           if (from >= steps) return std::span<const std::uint64_t>(words);
           return std::span(batch.spikes).subspan(at(from) * words.size(), words.size());
         }});
    return;
  }
  net.network().set_input({row.size(), [&, steps](std::int64_t t) {
                             const std::int64_t from = net.first() + t;
                             if (from < steps) {
                               std::copy_n(batch.values.begin() + from * std::ssize(row),
                                           row.size(), row.begin());
                             }
                             return std::span<const Number>(row);
                           }});
}

template <class Number>
Evaluation evaluate_as(const TrainedModel& model, const EvaluateOptions& options) {
  const double began = seconds_now();
  const std::unique_ptr<Task> task = tested_task(model, options);
  TaskShape shape = task->shape();
  check_shape(model, shape);
  shape.outputs = model.shape.outputs;
  Evaluation result;
  result.samples = samples_of(model, options, *task);
  const std::int64_t size = options.batch > 0
                                ? std::min(options.batch, std::max<std::int64_t>(result.samples, 1))
                                : model.options.batch;

  Forward<Number> net(model, size, std::min(kBlock, shape.steps), options.threads);
  Batch batch;
  BatchLoss<Number> loss(shape, size);
  net.network().set_loss(&loss);
  std::vector<Number> row;
  std::vector<std::uint64_t> words;
  Score all;
  for (std::int64_t from = 0; from < result.samples; from += size) {
    fill_tested(*task, options.split, from, result.samples, size, batch);
    give_inputs(net, batch, shape.steps, size, row, words);
    loss.set(batch, 1);
    loss.forget();
    const std::vector<std::int64_t> whole(at(size), shape.steps);
    net.start(batch.lengths.empty() ? whole : batch.lengths);
    while (net.first() < shape.steps) {
      if (options.stop.stop_requested()) fail(ErrorCode::cancelled, "stopped");
      loss.set_window(net.first());
      net.advance();
    }
    all += loss.score();
  }
  if (all.targets == 0) {
    fail(ErrorCode::invalid_argument, "no target of the ", result.samples, " samples counts");
  }
  result.targets = all.targets;
  result.metrics = metrics_of(shape, model.iteration, options.split, all, seconds_now() - began);
  return result;
}

}  // namespace

Evaluation evaluate(const TrainedModel& model, const EvaluateOptions& options) {
  return model.options.dtype == "double" ? evaluate_as<double>(model, options)
                                         : evaluate_as<float>(model, options);
}

}  // namespace ebb
