// SPDX-License-Identifier: Apache-2.0
// Hochreiter, Schmidhuber 1997, in the form of Bai, Kolter, Koltun 2018 (locuslab/TCN): the two
// marked numbers lie anywhere. Who always says 1 has a mean squared error of 1/6.
#include "ebb/core/random.h"
#include "ebb/data/task_parts.h"

namespace ebb {
namespace {

constexpr std::uint64_t kStream = 0x61646400;  // "add", apart from other users of the seed
constexpr std::int64_t kTested = 1000;
constexpr std::int64_t kMostSteps = std::int64_t{1} << 40;

class Adding final : public Task {
 public:
  explicit Adding(const TaskOptions& options)
      : steps_(steps_of(options, 1000, 2, kMostSteps)), seed_(options.seed) {}

  TaskShape shape() const override { return {.steps = steps_, .inputs = 2, .outputs = 1}; }
  std::int64_t samples(Split split) const override {
    return split == Split::train ? kEndless : kTested;
  }
  void fill(Split split, std::span<const std::int64_t> samples, Batch& batch) const override {
    begin_batch(*this, split, samples, batch);
    for (std::size_t b = 0; b < samples.size(); ++b) {
      const Random random(seed_, kStream | index_of(split), static_cast<std::uint64_t>(samples[b]));
      const auto number = [&](std::int64_t t) {
        return static_cast<float>(random.uniform(static_cast<std::uint64_t>(t)));
      };
      const auto n = static_cast<std::uint64_t>(steps_);
      const auto one = static_cast<std::int64_t>(random.below(n, n));
      auto other = static_cast<std::int64_t>(random.below(n + 1, n - 1));
      if (other >= one) ++other;
      for (std::int64_t t = 0; t < steps_; ++t) {
        float* const input = &batch.values[place(t, b, samples.size(), 2)];
        input[0] = number(t);
        input[1] = t == one || t == other ? 1.F : 0.F;
      }
      batch.targets[b] = number(one) + number(other);
    }
  }

 private:
  std::int64_t steps_;
  std::uint64_t seed_;
};

}  // namespace

std::unique_ptr<Task> make_adding(const TaskOptions& options) {
  return std::make_unique<Adding>(options);
}

}  // namespace ebb
