// SPDX-License-Identifier: Apache-2.0
// The loss of a batch and how often the net is right.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ebb/data/batch.h"
#include "ebb/data/task.h"
#include "ebb/run/network.h"
#include "ebb/train/batch_targets.h"

namespace ebb {

// Sums over targets, so that those of several batches and processes can be added.
struct Score {
  double loss = 0;     // cross-entropy in nats, or squared error averaged over the outputs
  double correct = 0;  // targets whose class got the largest output
  double targets = 0;
  Score& operator+=(const Score& other) {
    loss += other.loss;
    correct += other.correct;
    targets += other.targets;
    return *this;
  }
};

// Cross-entropy or squared error of the outputs of a network, which may see the sequences in windows
// of time steps.
template <class Number>
class BatchLoss : public Loss<Number> {
 public:
  // The batch must outlive it or the next set.
  BatchLoss(const TaskShape& shape, std::int64_t samples);
  // Gradients are those of the sum over targets times `scale`.
  void set(const Batch& batch, double scale);
  // The network's time step 0 is this of the sequence.
  void set_window(std::int64_t first) { first_ = first; }
  // How many targets count.
  double targets() const { return BatchTargets(shape_, samples_, *batch_).count(); }
  const Score& score() const { return score_; }
  void forget() { score_ = {}; }

  void begin() override {}
  void output(std::int64_t t, std::span<const Number> output) override;
  bool gradient(std::int64_t t, std::span<const Number> output,
                std::span<Number> gradient) override;
  double value() const override { return score_.loss * scale_; }

 private:
  TaskShape shape_;
  std::int64_t samples_, first_ = 0;
  const Batch* batch_ = nullptr;
  double scale_ = 1;
  Score score_;
  std::vector<double> shares_;  // softmax
};

}  // namespace ebb
