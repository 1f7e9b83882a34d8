// SPDX-License-Identifier: Apache-2.0
// The copy memory task of Arjovsky, Shah, Bengio 2016, laid out as in Bai, Kolter, Koltun 2018:
// ten symbols of 1 to 8, T - 1 blanks, eleven times 9; to give: T + 10 blanks, the ten symbols.
// Without memory the cross-entropy is 10 ln 8 / (T + 20).
#include "ebb/core/random.h"
#include "ebb/data/task_parts.h"

namespace ebb {
namespace {

constexpr std::uint64_t kStream = 0x63707900;  // "cpy", apart from other users of the seed
constexpr std::int64_t kTested = 1000;
constexpr std::int64_t kMostSteps = std::int64_t{1} << 40;
constexpr std::int64_t kRemembered = 10;
constexpr std::int64_t kSymbols = 10;
constexpr std::size_t kBlank = 0;
constexpr std::size_t kSay = 9;

class CopyMemory final : public Task {
 public:
  explicit CopyMemory(const TaskOptions& options)
      : steps_(steps_of(options, 120, 2 * kRemembered + 1, kMostSteps)), seed_(options.seed) {}

  TaskShape shape() const override {
    return {.steps = steps_,
            .inputs = kSymbols,
            .outputs = kSymbols,
            .spikes = true,
            .classes = true,
            .every_step = true};
  }
  std::int64_t samples(Split split) const override {
    return split == Split::train ? kEndless : kTested;
  }
  void fill(Split split, std::span<const std::int64_t> samples, Batch& batch) const override {
    begin_batch(*this, split, samples, batch);
    for (std::size_t b = 0; b < samples.size(); ++b) {
      const Random random(seed_, kStream | index_of(split), static_cast<std::uint64_t>(samples[b]));
      const auto symbol = [&](std::int64_t i) {
        return 1 + random.below(static_cast<std::uint64_t>(i), 8);
      };
      for (std::int64_t t = 0; t < steps_; ++t) {
        const std::size_t input = t < kRemembered                  ? symbol(t)
                                  : t < steps_ - (kRemembered + 1) ? kBlank
                                                                   : kSay;
        const std::int64_t said = t - (steps_ - kRemembered);
        const std::size_t at = place(t, b, samples.size(), 1);
        batch.spikes[at] = std::uint64_t{1} << input;
        batch.classes[at] = static_cast<std::int32_t>(said < 0 ? kBlank : symbol(said));
      }
    }
  }

 private:
  std::int64_t steps_;
  std::uint64_t seed_;
};

}  // namespace

std::unique_ptr<Task> make_copy(const TaskOptions& options) {
  return std::make_unique<CopyMemory>(options);
}

}  // namespace ebb
