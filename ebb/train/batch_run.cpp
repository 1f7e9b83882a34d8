// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/batch_run.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "ebb/core/at.h"
#include "ebb/core/budget_words.h"
#include "ebb/core/clock.h"
#include "ebb/core/error.h"
#include "ebb/core/vector_bytes.h"
#include "ebb/core/workers.h"
#include "ebb/core/zeros.h"

namespace ebb {
namespace {

int threads_of(const TrainOptions& options, int ranks) {
  if (options.threads > 0) return options.threads;
  // Processes may be bound to their share already, or share all of the machine.
  const int share = static_cast<int>(std::thread::hardware_concurrency()) / ranks;
  return std::clamp(share, 1, usable_processors());
}

}  // namespace

NetworkOptions network_of(const TrainOptions& options, const TaskShape& shape, int rank,
                          int ranks) {
  NetworkOptions net;
  const std::int64_t reach = truncation(options);
  net.time_steps = reach > 0 ? std::min(reach, shape.steps) : shape.steps;
  net.batch = options.batch;
  net.chunk = options.chunk;
  net.pipelined = options.pipelined;
  net.dropout = options.dropout;
  net.input_spikes = shape.spikes;
  net.threads = threads_of(options, ranks);
  net.seed = options.seed;
  net.first_sample = rank * options.batch;
  for (std::int64_t l = 0; l < options.layers; ++l) {
    net.layers.push_back(options.layer);
    net.layers.back().input = l == 0 ? shape.inputs : 0;
    net.layers.back().seed = options.seed + static_cast<std::uint64_t>(2 * l);
  }
  LayerOptions readout;
  readout.cell = options.readout;
  readout.hidden = shape.outputs;
  const bool integrates = std::ranges::any_of(cells(), [&](const CellRow& row) {
    return row.name == options.readout &&
           std::ranges::count(row.parameters, "tau_mem", &UnitParameter::name) > 0;
  });
  if (integrates) {
    readout.tau_mem = options.layer.tau_mem;
    readout.train_tau = options.layer.train_tau;
  }
  net.layers.push_back(readout);
  return net;
}

template <class Number>
BatchRun<Number>::BatchRun(const TrainOptions& options, const TaskShape& shape,
                           std::vector<SlowTier> tiers, int rank, int ranks, const Batch& sample,
                           bool memory_late)
    : shape_(shape),

      network_(network_of(options, shape, rank, ranks)),
      loss_(shape, options.batch),
      row_(at(options.batch * shape.inputs)),
      empty_words_(at(options.batch * words_of(shape.inputs))),
      lengths_(at(options.batch)) {
  for (auto* state : {&before_, &after_, &adjoint_, &of_before_}) {
    state->resize(at(network_.bytes(0).state));
  }
  if (windows() > 1) {
    gradient_ = zeros<Number>(network_.values().size(), "the batch's gradient");
  }
  network_.set_loss(&loss_);
  if (shape_.spikes) {
    network_.set_spikes({empty_words_.size(), [this](std::int64_t t) { return spikes_at(t); }});
  } else {
    network_.set_input({row_.size(), [this](std::int64_t t) { return values_at(t); }});
  }
  give(sample, 1);
  give_window(0);
  RunOptions how;
  how.budget = budget_bytes(options, plain_bytes());
  how.tiers = std::move(tiers);
  how.memory_late = memory_late;
  how.strategy = truncation(options) > 0 ? "auto" : options.strategy;
  try {
    run_ = std::make_unique<Run>(network_, std::move(how));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::infeasible_budget) throw;
    throw in_unit_of(options.budget, plain_bytes(), error);
  }
}

// Whether costs matter: a plan that keeps everything is the fastest whatever they are.
template <class Number>
bool BatchRun<Number>::has_choice() const {
  const Prediction& found = run_->plan().prediction;
  return found.forwards > run_->chain().steps() ||
         std::ranges::any_of(found.moved, [](const Prediction::Traffic& tier) {
           return tier.written + tier.read > 0;
         });
}

// False where they could not be measured: then the plan stays.
template <class Number>
bool BatchRun<Number>::plan_again() {
  give_window(0);
  try {
    run_->measure_again();
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::io) throw;
    return false;
  }
}

template <class Number>
std::int64_t BatchRun<Number>::windows() const {
  return (shape_.steps + network_.time_steps() - 1) / network_.time_steps();
}

// Beyond the last time step, in the last of several windows, there is nothing.
template <class Number>
std::span<const Number> BatchRun<Number>::values_at(std::int64_t t) {
  const std::size_t width = row_.size();
  if (first_ + t >= shape_.steps) {
    std::fill(row_.begin(), row_.end(), Number{0});
    return row_;
  }
  const float* const from = given_->values.data() + at(first_ + t) * width;
  if constexpr (std::is_same_v<Number, float>) return {from, width};
  std::copy_n(from, width, row_.begin());
  return row_;
}

template <class Number>
std::span<const std::uint64_t> BatchRun<Number>::spikes_at(std::int64_t t) {
  if (first_ + t >= shape_.steps) return empty_words_;
  const std::size_t width = empty_words_.size();
  return {given_->spikes.data() + at(first_ + t) * width, width};
}

template <class Number>
void BatchRun<Number>::give(const Batch& batch, double scale) {
  given_ = &batch;
  loss_.set(batch, scale);
  loss_.forget();
  activity_ = 0;
  dropped_ = 0;
  std::fill(before_.begin(), before_.end(), std::byte{0});
}

template <class Number>
void BatchRun<Number>::give_window(std::int64_t window) {
  const std::int64_t width = network_.time_steps();
  first_ = window * width;
  loss_.set_window(first_);
  for (std::size_t b = 0; b < lengths_.size(); ++b) {
    const std::int64_t length = given_->lengths.empty() ? shape_.steps : given_->lengths[b];
    lengths_[b] = std::clamp<std::int64_t>(length - first_, 0, width);
  }
  network_.set_lengths(lengths_);
}

template <class Number>
void BatchRun<Number>::count() {
  activity_ += network_.activity() / static_cast<double>(windows());
  dropped_ += network_.dropped_spikes();
}

template <class Number>
Score BatchRun<Number>::learn(const Batch& batch, double scale, std::uint64_t iteration,
                              std::stop_token stop) {
  give(batch, scale);
  planned_again_.reset();
  if (wrong_ && !stop.stop_requested()) {
    if (plan_again()) planned_again_ = wrong_;
    wrong_.reset();
    give(batch, scale);
  }
  const double start = seconds_now();
  run_->set_stop(std::move(stop));
  std::fill(gradient_.begin(), gradient_.end(), Number{0});
  std::fill(adjoint_.begin(), adjoint_.end(), std::byte{0});
  for (std::int64_t window = 0; window < windows(); ++window) {
    give_window(window);
    // Other masks of dropout in each window.
    network_.set_iteration(iteration * static_cast<std::uint64_t>(windows()) +
                           static_cast<std::uint64_t>(window));
    run_->forward(before_, after_);
    count();
    run_->backward(adjoint_, of_before_);
    const std::span<const Number> own = network_.gradient();
    for (std::size_t i = 0; i < gradient_.size(); ++i) gradient_[i] += own[i];
    std::swap(before_, after_);
  }
  // Measuring is left to the next call: the Step's gradients, which it overwrites, are still wanted.
  if (has_choice()) {
    wrong_ = check_.look(run_->plan().prediction.seconds * static_cast<double>(windows()),
                         seconds_now() - start);
  }
  return loss_.score();
}

template <class Number>
Score BatchRun<Number>::test(const Batch& batch) {
  give(batch, 1);
  run_->set_stop({});
  network_.set_dropout(false);
  for (std::int64_t window = 0; window < windows(); ++window) {
    give_window(window);
    run_->forward(before_, after_);
    count();
    std::swap(before_, after_);
  }
  network_.set_dropout(true);
  return loss_.score();
}

template <class Number>
Bytes BatchRun<Number>::beside_bytes() const {
  Bytes bytes = network_.callers_bytes();
  for (const auto* state : {&before_, &after_, &adjoint_, &of_before_})
    bytes += vector_bytes(*state);
  bytes += vector_bytes(row_) + vector_bytes(empty_words_) + vector_bytes(lengths_) +
           vector_bytes(gradient_);
  return bytes;
}

template class BatchRun<float>;
template class BatchRun<double>;

}  // namespace ebb
