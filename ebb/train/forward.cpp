// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/forward.h"

#include <algorithm>

#include "ebb/core/at.h"
#include "ebb/train/batch_run.h"
#include "ebb/train/model_tensors.h"

namespace ebb {
namespace {

NetworkOptions forward_options(const TrainedModel& model, std::int64_t batch, std::int64_t block,
                               int threads) {
  TrainOptions options = model.options;
  options.batch = batch;
  options.dropout = 0;
  options.chunk = 0;
  if (threads > 0) options.threads = threads;
  NetworkOptions net = network_of(options, model.shape, 0, 1);
  net.time_steps = block;
  return net;
}

}  // namespace

template <class Number>
Forward<Number>::Forward(const TrainedModel& model, std::int64_t batch, std::int64_t block,
                         int threads)
    : network_(forward_options(model, batch, block, threads)), here_(at(batch)) {
  restore_model(network_, model.options.layers, model.tensors);
  const StepBytes bytes = network_.bytes(0);
  state_ = Buffer(Ledger(kUnlimited), "state", bytes.state);
  scratch_ = Buffer(Ledger(kUnlimited), "scratch", bytes.scratch);
}

template <class Number>
void Forward<Number>::start(std::span<const std::int64_t> lengths) {
  lengths_.assign(lengths.begin(), lengths.end());
  std::ranges::fill(state_.at(0, state_.size()), std::byte{0});
  first_ = 0;
  network_.begin();
}

template <class Number>
void Forward<Number>::advance() {
  for (std::size_t b = 0; b < here_.size(); ++b) {
    here_[b] = std::clamp<std::int64_t>(lengths_[b] - first_, 0, block());
  }
  network_.set_lengths(here_);
  network_.advance({0, network_.steps(), true}, state_.data(), scratch_.data());
  first_ += block();
}

template class Forward<float>;
template class Forward<double>;

}  // namespace ebb
