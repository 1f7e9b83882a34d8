// SPDX-License-Identifier: Apache-2.0
// What a network refuses, and that its results do not depend on what they should not.
#include <gtest/gtest.h>

#include "ebb/core/random.h"
#include "ebb/run/network.h"
#include "ebb/run/run.h"
#include "tests/message_of.h"
#include "tests/vector_sets.h"

namespace ebb::test::options_test {
namespace {

NetworkOptions good() {
  NetworkOptions options;
  options.time_steps = 10;
  options.batch = 2;
  options.layers = {{.cell = "lstm", .input = 3, .hidden = 4}};
  options.threads = 1;
  return options;
}

std::string refusal(const std::function<void(NetworkOptions&)>& change) {
  NetworkOptions options = good();
  change(options);
  return message_of([&] { const Network<float> net(options); });
}

TEST(Options, ThatCannotBeAreRefused) {
  using O = NetworkOptions;
  std::string names;
  for (const CellRow& row : cells()) names += (names.empty() ? "" : ", ") + row.name;
  EXPECT_EQ(refusal([](O& o) { o.layers = {}; }), "a stack needs 1 layer or more");
  EXPECT_EQ(refusal([](O& o) { o.time_steps = 0; }),
            "there are 0 time steps; there must be 1 or more");
  EXPECT_EQ(refusal([](O& o) { o.batch = 0; }), "the batch is 0; it must be 1 to 65535");
  EXPECT_EQ(refusal([](O& o) { o.dropout = 1; }), "dropout is 1; it must be 0 or more and below 1");
  EXPECT_EQ(refusal([](O& o) { o.chunk = -1; }), "the chunk is -1; it must be 0 or more");
  EXPECT_EQ(refusal([](O& o) { o.layers[0].cell = "lstn"; }), "no cell 'lstn'; there are " + names);
  EXPECT_EQ(refusal([](O& o) { o.layers[0].hidden = 0; }),
            "a layer of 'lstm' has 0 units; there must be 1 to 1000000");
  EXPECT_EQ(refusal([](O& o) { o.layers[0].input = 0; }),
            "a layer of 'lstm' has 0 inputs; there must be 1 to 1000000");
  EXPECT_EQ(refusal([](O& o) { o.layers.push_back({.cell = "gru", .input = 5, .hidden = 3}); }),
            "layer 1 has 5 inputs, but the layer below it has 4 units; leave the inputs out");
  EXPECT_EQ(refusal([](O& o) { o.layers[0].recurrent_density = 0; }),
            "recurrent weights: the density is 0; it must be above 0 and up to 1");
  EXPECT_EQ(refusal([](O& o) { o.layers[0].max_activity = 0.5; }),
            "a layer of 'lstm': gradient_threshold and max_activity are for cells that spike");
  EXPECT_EQ(refusal([](O& o) {
              o.layers[0].cell = "lif";
              o.layers[0].surrogate = "step";
            }),
            "no surrogate 'step'; there are fast_sigmoid, superspike, arctan, triangular, boxcar, "
            "multi_gaussian");
  EXPECT_EQ(refusal([](O& o) { o.layers[0].threshold = 1; }),
            "a layer of 'lstm' has no threshold; leave it out");
  EXPECT_EQ(refusal([](O& o) { o.layers[0].surrogate = "boxcar"; }),
            "a layer of 'lstm' has no surrogate; leave surrogate and sharpness out");
  EXPECT_EQ(refusal([](O& o) {
              o.layers[0].cell = "lif";
              o.layers[0].tau_mem = -1;
            }),
            "a layer of 'lif': tau_mem is -1; it must be above 0");
  EXPECT_EQ(refusal([](O& o) {
              o.layers[0].cell = "lif";
              o.layers[0].max_activity = 0.1;
            }),
            "max_activity is 0.1, which lets none of 4 units be heard; it must be 0.5 or more");
  EXPECT_EQ(refusal([](O& o) { o.layers[0].input_pattern = Pattern{{0, 1, 1, 1, 1}, {5}}; }),
            "input weights: starts must be 17 numbers from 0 to the number of columns given, 1");
}

TEST(Options, WrongDataAreRefused) {
  Network<float> net(good());
  const std::vector<float> x(20);
  EXPECT_EQ(message_of([&] { net.set_input({std::span(x), 5}); }),
            "the input has rows of 5; they must have 6");
  EXPECT_EQ(message_of([&] { net.set_spikes({}); }),
            "the network was made for numbers; say input_spikes to give bits");
  const std::vector<std::int64_t> lengths{3, 11};
  EXPECT_EQ(message_of([&] { net.set_lengths(lengths); }),
            "a length is 11; it must be 0 to 10, the time steps");
  const std::vector<std::byte> state(static_cast<std::size_t>(net.bytes(0).state));
  std::vector<std::byte> end(state.size());
  ebb::Run run(
      net,
      {.strategy = "store_all", .chain = Chain::uniform(net.steps(), {}), .platform = Platform{}});
  EXPECT_EQ(message_of([&] { run.forward(state, end); }), "the network has no input; set it first");
}

// The first weight's gradient of a net of one spiking unit in each of two layers, with dropout.
template <class Number>
double gradient_of_one_unit() {
  NetworkOptions options = good();
  options.dropout = 0.5;
  options.time_steps = 30;
  options.batch = 8;
  const LayerOptions unit{
      .cell = "lif", .input = 3, .hidden = 1, .weight_scale = 6, .threshold = 0.2};
  options.layers = {unit, unit, {.cell = "linear", .hidden = 1}};
  options.layers[1].input = 0;
  Network<Number> net(options);
  std::vector<Number> dy(8, 1);
  std::vector<Number> x(24);
  net.set_input({x.size(), [&x](std::int64_t t) {
                   for (std::size_t i = 0; i < x.size(); ++i) {
                     x[i] = static_cast<Number>(Random(1, static_cast<std::uint64_t>(t)).normal(i));
                   }
                   return std::span<const Number>(x);
                 }});
  net.set_output_gradient({dy.size(), [&dy](std::int64_t) { return std::span<const Number>(dy); }});
  ebb::Run run(
      net,
      {.strategy = "store_all", .chain = Chain::uniform(net.steps(), {}), .platform = Platform{}});
  std::vector<std::byte> state(static_cast<std::size_t>(net.bytes(0).state)), end(state.size()),
      adjoint(state.size()), of_state(state.size());
  run.forward(state, end);
  run.backward(adjoint, of_state);
  return static_cast<double>(net.gradient()[0]);
}

// Bits of one unit take more bytes than its number does.
TEST(Options, OneSpikingUnitUnderDropout) {
  EXPECT_NE(gradient_of_one_unit<double>(), 0);
  EXPECT_NEAR(gradient_of_one_unit<float>(), gradient_of_one_unit<double>(), 1e-4);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
TEST(Options, TheOldNameOfAChunkStillWorks) {
  NetworkOptions options = good();
  options.grain = 3;
  const Network<float> net(options);
  EXPECT_EQ(net.steps(), 4);
  EXPECT_EQ(net.grain(), 3);
  EXPECT_EQ(net.chunk(), 3);
}
#pragma GCC diagnostic pop

EBB_WITH_EACH_VECTOR_SET(VectorSets);

// Tapes of spiking nets are longer, but leave room for states where there is little memory.
TEST_P(VectorSets, ATapeAndItsScratchFitSmallBudgets) {
  for (const char* cell : {"lstm", "lif", "alif", "adlif", "egru"}) {
    for (const auto& [steps, threads] :
         std::vector<std::pair<std::int64_t, int>>{{500, 2}, {1000, 2}, {4000, 2}, {500, 16}}) {
      NetworkOptions options = good();
      options.time_steps = steps;
      options.batch = 16;
      options.threads = threads;
      options.layers = {{.cell = cell, .input = 2, .hidden = 64}, {.cell = "linear", .hidden = 2}};
      const Network<float> net(options);
      const StepBytes bytes = net.bytes(0);
      const Bytes all = bytes.tape + bytes.adjoint + bytes.scratch + 2 * bytes.state;
      EXPECT_LT(100 * all, 4 * net.plain_bytes())
          << cell << " " << steps << " " << threads << " " << net.chunk();
    }
  }
}

}  // namespace
}  // namespace ebb::test::options_test
