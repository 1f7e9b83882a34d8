// SPDX-License-Identifier: Apache-2.0
// Layers large enough for several threads, for several panels of weights and for more inputs than are
// laid out at a time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "ebb/core/bits.h"
#include "ebb/core/random.h"
#include "ebb/run/network.h"
#include "ebb/run/run.h"
#include "tests/thorough.h"
#include "tests/vector_sets.h"

namespace ebb::test::threads_test {
namespace {

constexpr std::int64_t kSteps = 12;

struct Net {
  std::string cell;
  std::int64_t input = 5, hidden = 150, batch = 64;
  double density = 1;
  bool spikes = false;
  int threads = 1;
  std::string strategy = "store_all";
};

template <class Number>
struct Results {
  std::vector<Number> outputs, gradient;
  std::vector<std::byte> of_state;
  bool operator==(const Results&) const = default;
};

template <class Number>
Results<Number> results(const Net& of) {
  NetworkOptions options;
  options.time_steps = kSteps;
  options.batch = of.batch;
  options.chunk = 5;
  options.threads = of.threads;
  options.input_spikes = of.spikes;
  options.layers = {{.cell = of.cell,
                     .input = of.input,
                     .hidden = of.hidden,
                     .input_density = of.density,
                     .recurrent_density = of.density,
                     .weight_scale = 3},
                    {.cell = "linear", .hidden = 2}};
  Network<Number> net(options);
  const Random random(1);
  const auto size = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  const std::size_t row = size(of.batch * of.input), bits_row = size(of.batch * words_of(of.input));
  std::vector<Number> x(row * size(kSteps));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<Number>(random.normal(i));
  std::vector<std::uint64_t> bits(bits_row * size(kSteps));
  for (std::size_t i = 0; i < bits.size(); ++i) {
    // Bits beyond the inputs do not count.
    bits[i] = static_cast<std::uint64_t>(random.uniform(i) * 0x1p63) * 2 + 1;
  }
  if (of.spikes) {
    net.set_spikes({std::span<const std::uint64_t>(bits), bits_row});
  } else {
    net.set_input({std::span<const Number>(x), row});
  }
  Results<Number> all;
  all.outputs.resize(size(kSteps * of.batch * 2));
  const std::vector<Number> ones(size(kSteps * of.batch * 2), 1);
  net.set_output({std::span(all.outputs), size(of.batch * 2)});
  net.set_output_gradient({std::span<const Number>(ones), size(of.batch * 2)});
  RunOptions how;
  how.strategy = of.strategy;
  if (of.strategy != "store_all") how.slots = 1;
  how.chain = Chain::uniform(net.steps(), {});
  how.platform = Platform{};
  Run run(net, how);
  std::vector<std::byte> state(size(net.bytes(0).state)), end(state.size()), adjoint(state.size());
  all.of_state.resize(state.size());
  run.forward(state, end);
  run.backward(adjoint, all.of_state);
  all.gradient.assign(net.gradient().begin(), net.gradient().end());
  return all;
}

TEST(Threads, ResultsDoNotDependOnThem) {
  for (const CellRow& row : cells()) {
    if (row.is_readout) continue;
    const std::string& cell = row.name;
    for (const double density : {1.0, 0.3}) {
      for (const bool spikes : {false, true}) {
        Net net{.cell = cell, .density = density, .spikes = spikes};
        const Results<float> alone = results<float>(net);
        net.threads = 3;
        EXPECT_TRUE(results<float>(net) == alone) << cell << " " << density << " " << spikes;
        EXPECT_GT(std::ranges::max(alone.gradient), 0) << cell;
      }
    }
  }
}

class VectorSetsOfCells : public VectorSets {};
EBB_WITH_EACH_VECTOR_SET(VectorSetsOfCells);

TEST_P(VectorSetsOfCells, ThreadsAndPlansChangeNoBit) {
  for (const CellRow& row : cells()) {
    if (row.is_readout) continue;
    const std::string& cell = row.name;
    for (const double density : {1.0, 0.3}) {
      Net net{.cell = cell, .batch = 16, .density = density};
      const Results<float> alone = results<float>(net);
      net.threads = 3;
      EXPECT_TRUE(results<float>(net) == alone) << cell << " " << density;
      net.strategy = "revolve";
      EXPECT_TRUE(results<float>(net) == alone) << cell << " " << density;
    }
  }
}

// Double precision has loops of its own.
TEST_P(VectorSetsOfCells, FloatAgreesWithDouble) {
  for (const CellRow& row : cells()) {
    if (row.is_readout) continue;
    const std::string& cell = row.name;
    for (const double density : {1.0, 0.3}) {
      for (const bool spikes : {false, true}) {
        if (quick() && spikes != (density < 1)) continue;
        const Net net{.cell = cell,
                      .input = 301,
                      .hidden = 293,
                      .batch = 3,
                      .density = density,
                      .spikes = spikes,
                      .threads = 2};
        const Results<float> ours = results<float>(net);
        const Results<double> right = results<double>(net);
        ASSERT_EQ(ours.gradient.size(), right.gradient.size());
        double largest = 0, error = 0;
        for (std::size_t i = 0; i < ours.gradient.size(); ++i) {
          largest = std::max(largest, std::abs(right.gradient[i]));
          error =
              std::max(error, std::abs(static_cast<double>(ours.gradient[i]) - right.gradient[i]));
        }
        EXPECT_LT(error, 1e-4 * largest) << cell << " " << density << " " << spikes;
      }
    }
  }
}

}  // namespace
}  // namespace ebb::test::threads_test
