// SPDX-License-Identifier: Apache-2.0
#include "ebb/experiments/bench_net.h"

#include <algorithm>
#include <cstddef>

#include "ebb/core/bits.h"
#include "ebb/core/random.h"

namespace ebb {
namespace {

constexpr std::uint64_t kSeed = 1;
enum Stream : std::uint64_t { of_outputs, of_inputs };

float drawn(const Random& random, std::size_t i) {
  return static_cast<float>(2 * random.uniform(i) - 1);
}

}  // namespace

BenchNet::BenchNet(const NetworkOptions& options, double rate) : net_(options) {
  const Random random(kSeed, of_outputs);
  of_output_.resize(static_cast<std::size_t>(net_.batch() * net_.outputs()));
  for (std::size_t i = 0; i < of_output_.size(); ++i) {
    of_output_[i] = drawn(random, i) / static_cast<float>(net_.batch());
  }
  net_.set_output_gradient(
      {of_output_.size(), [this](std::int64_t) { return std::span<const float>(of_output_); }});
  if (options.input_spikes) {
    give_spikes(rate);
  } else {
    give_numbers();
  }
}

void BenchNet::give_numbers() {
  numbers_.resize(static_cast<std::size_t>(net_.batch() * net_.inputs()));
  net_.set_input({numbers_.size(), [this](std::int64_t t) {
                    const Random random(kSeed, of_inputs, static_cast<std::uint64_t>(t));
                    for (std::size_t i = 0; i < numbers_.size(); ++i) {
                      numbers_[i] = drawn(random, i);
                    }
                    return std::span<const float>(numbers_);
                  }});
}

void BenchNet::give_spikes(double rate) {
  const std::int64_t inputs = net_.inputs(), words = words_of(inputs), batch = net_.batch();
  spikes_.resize(static_cast<std::size_t>(batch * words));
  net_.set_spikes({spikes_.size(), [this, inputs, words, batch, rate](std::int64_t t) {
                     const Random random(kSeed, of_inputs, static_cast<std::uint64_t>(t));
                     std::ranges::fill(spikes_, std::uint64_t{0});
                     for (std::int64_t i = 0; i < batch * inputs; ++i) {
                       if (random.uniform(static_cast<std::uint64_t>(i)) >= rate) continue;
                       const std::int64_t sample = i / inputs, input = i % inputs;
                       const auto word = static_cast<std::size_t>(sample * words + input / 64);
                       spikes_[word] |= std::uint64_t{1} << (input % 64);
                     }
                     return std::span<const std::uint64_t>(spikes_);
                   }});
}

}  // namespace ebb
