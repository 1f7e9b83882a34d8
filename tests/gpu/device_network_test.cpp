// SPDX-License-Identifier: Apache-2.0
// Networks on a CUDA device against those on the CPU, and against themselves in other budgets. Runs twice: on a GPU, where there is
// one, and on a device that the host plays (tests/stand_in).
#include "ebb/run/device_network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ebb/core/error.h"
#include "ebb/device/cuda_arrays.h"
#include "ebb/device/device_memory.h"
#include "ebb/plan/strategies.h"
#include "tests/gpu/device_run.h"

namespace ebb::test::device_network_test {
namespace {

// 21 time steps in chunks of 4: the last one is shorter.
DeviceNetworkOptions options_of(const std::string& cell, const std::string& number) {
  DeviceNetworkOptions options;
  options.time_steps = 21;
  options.batch = 3;
  options.layers = {{.cell = cell, .input = 5, .hidden = 64}, {.cell = cell, .hidden = 32}};
  if (cell == "egru") {
    for (LayerOptions& layer : options.layers) {
      layer.surrogate = "arctan";  // which is not 0 far from the threshold
      layer.train_threshold = true;
    }
  }
  options.number = number;
  options.chunk = 4;
  return options;
}

class OnDevice : public testing::Test {
 protected:
  void SetUp() override {
    const std::string missing = cuda_missing();
    if (!missing.empty()) GTEST_SKIP() << missing;
  }
};

template <class Work>
void expect_error(ErrorCode code, const std::string& words, const Work& work) {
  try {
    work();
    ADD_FAILURE() << "no error that says '" << words << "'";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

// What a time step that hands on a number loses of it, forward and backward, where a GPU may cut digits off instead of rounding them.
float lost_of(const std::string& number) {
  if (number == "bf16") return 0x1p-8F;
  return number == "f32" ? 0x1p-20F : 0x1p-10F;
}

void expect_near(const char* what, const std::vector<float>& found, const std::vector<float>& exact,
                 const DeviceNetworkOptions& options) {
  ASSERT_EQ(found.size(), exact.size()) << what;
  float largest = 0, difference = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    largest = std::max(largest, std::abs(exact[i]));
    difference = std::max(difference, std::abs(found[i] - exact[i]));
    ASSERT_FALSE(std::isnan(found[i])) << what << " " << i;
  }
  EXPECT_LE(difference, static_cast<float>(options.time_steps) * lost_of(options.number) * largest)
      << what;
  EXPECT_GT(largest, 0) << what;
}

void expect_near(const DeviceResult& found, const DeviceResult& exact,
                 const DeviceNetworkOptions& options) {
  expect_near("y", found.y, exact.y, options);
  expect_near("the final state", found.final, exact.final, options);
  expect_near("the gradient of x", found.of_x, exact.of_x, options);
  expect_near("the gradient of the initial state", found.of_initial, exact.of_initial, options);
  expect_near("the gradient", found.gradient, exact.gradient, options);
}

// In pieces, since free memory may lie in pieces.
std::vector<DeviceMemory> all_but_four_mebibytes() {
  std::vector<DeviceMemory> taken;
  for (const Bytes piece : {Bytes{1} << 30, Bytes{64} << 20, Bytes{4} << 20}) {
    try {
      for (;;) taken.emplace_back(piece);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
    }
  }
  taken.pop_back();
  return taken;
}

class OfCells : public OnDevice,
                public testing::WithParamInterface<std::tuple<std::string, std::string>> {};

TEST_P(OfCells, AreTheCpus) {
  const auto& [cell, number] = GetParam();
  const DeviceNetworkOptions options = options_of(cell, number);
  const DeviceData data = device_data(options);
  DeviceNetwork net(options);
  expect_near(run_on_device(net, options, data), run_on_cpu(options, data), options);
}

TEST_P(OfCells, WithoutBiasAndInThreeLayers) {
  const auto& [cell, number] = GetParam();
  DeviceNetworkOptions options = options_of(cell, number);
  options.layers = {{.cell = cell, .input = 3, .hidden = 32, .bias = false},
                    {.cell = cell, .hidden = 64, .bias = false},
                    {.cell = cell, .hidden = 32}};
  const DeviceData data = device_data(options);
  DeviceNetwork net(options);
  expect_near(run_on_device(net, options, data), run_on_cpu(options, data), options);
}

TEST_P(OfCells, AreTheSameBitsInEveryBudget) {
  const auto& [cell, number] = GetParam();
  DeviceNetworkOptions options = options_of(cell, number);
  options.chunk = 2;
  const DeviceData data = device_data(options);
  DeviceNetwork unlimited(options);
  const DeviceResult all = run_on_device(unlimited, options, data);
  EXPECT_EQ(run_on_device(unlimited, options, data), all) << "the second time";
  const Report kept = unlimited.report();
  EXPECT_EQ(kept.measured.forwards(), 11);
  const Bytes most = kept.measured.peak[0];
  EXPECT_LE(most, kept.predicted.peak[0]);
  const Bytes least = least_budget_of(options);
  ASSERT_GT(least, 1);
  ASSERT_LT(least, most);
  for (const Bytes budget : {least, (2 * least + most) / 3, (least + 2 * most) / 3}) {
    options.budget = budget;
    DeviceNetwork net(options);
    EXPECT_EQ(run_on_device(net, options, data), all) << budget;
    const Report report = net.report();
    EXPECT_GT(report.measured.forwards(), 11) << budget;
    EXPECT_LE(report.measured.peak[0], budget);
    EXPECT_GT(report.measured.seconds, 0);
  }
}

TEST_P(OfCells, AreTheSameBitsWithStatesInTheHostsMemory) {
  const auto& [cell, number] = GetParam();
  DeviceNetworkOptions options = options_of(cell, number);
  options.chunk = 1;
  const DeviceData data = device_data(options);
  DeviceNetwork unlimited(options);
  const DeviceResult all = run_on_device(unlimited, options, data);
  options.budget = least_budget_of(options);
  options.host_budget = 1 << 20;
  DeviceNetwork net(options);
  EXPECT_EQ(run_on_device(net, options, data), all);
  EXPECT_EQ(run_on_device(net, options, data), all) << "the second time";
  const Report report = net.report();
  ASSERT_EQ(report.measured.tiers.size(), 1U);
  EXPECT_GT(report.measured.tiers[0].written.states, 0);
  EXPECT_GT(report.measured.tiers[0].read.states, 0);
  EXPECT_LE(report.measured.peak[0], options.budget);
  EXPECT_LE(report.measured.peak[1], options.host_budget);
}

INSTANTIATE_TEST_SUITE_P(All, OfCells,
                         testing::Combine(testing::Values("lstm", "gru", "rnn", "rnn_relu", "egru"),
                                          testing::Values("bf16", "f16", "tf32", "f32")),
                         [](const auto& of) {
                           return std::get<0>(of.param) + "_" + std::get<1>(of.param);
                         });

// What a strategy does with states and tapes is its own; each of them must find what it left.
TEST_F(OnDevice, EveryStrategyGivesTheSameBits) {
  DeviceNetworkOptions options = options_of("lstm", "tf32");
  options.time_steps = 12;
  options.chunk = 1;
  const DeviceData data = device_data(options);
  DeviceNetwork unlimited(options);
  const DeviceResult all = run_on_device(unlimited, options, data);
  int ran = 0;
  for (const StrategyRow& row : strategies()) {
    for (const Bytes host : {Bytes{0}, Bytes{1} << 20}) {
      options.strategy = row.name;
      options.host_budget = host;
      options.budget = 1;
      try {
        device_plan(options);
      } catch (const Error& error) {
        if (!error.least_budget())
          continue;  // it needs a tier, or cannot do without copies of tapes
        options.budget = *error.least_budget();
      }
      for (const Bytes more : {Bytes{0}, Bytes{10'000}, Bytes{40'000}}) {
        options.budget += more;
        DeviceNetwork net(options);
        EXPECT_EQ(run_on_device(net, options, data), all) << row.name << " " << options.budget;
        EXPECT_LE(net.report().measured.peak[0], options.budget) << row.name;
        ++ran;
      }
    }
  }
  EXPECT_GE(ran, 30);
}

TEST_F(OnDevice, WithoutStatesAndOutputs) {
  const DeviceNetworkOptions options = options_of("lstm", "tf32");
  DeviceData data = device_data(options);
  std::ranges::fill(data.initial, 0.F);
  std::ranges::fill(data.of_final, 0.F);
  DeviceNetwork net(options);
  const DeviceResult all = run_on_device(net, options, data);
  DeviceMemory x(static_cast<Bytes>(4 * data.x.size())),
      of_y(static_cast<Bytes>(4 * data.of_y.size()));
  x.upload(data.x);
  of_y.upload(data.of_y);
  net.forward(x.data(), nullptr);
  net.backward(of_y.data());
  std::vector<float> gradient(data.parameters.size());
  net.copy_gradient(gradient);
  EXPECT_EQ(gradient, all.gradient);
}

TEST_F(OnDevice, AnotherStreamGivesTheSameBits) {
  const DeviceNetworkOptions options = options_of("gru", "bf16");
  const DeviceData data = device_data(options);
  DeviceNetwork net(options);
  const DeviceResult all = run_on_device(net, options, data);
  net.set_stream(reinterpret_cast<void*>(2));  // cudaStreamPerThread
  EXPECT_EQ(run_on_device(net, options, data), all);
  DeviceMemory x(static_cast<Bytes>(2 * data.x.size()));
  net.forward(x.data(), nullptr);
  net.set_stream(nullptr);
  expect_error(ErrorCode::invalid_argument, "backward", [&] { net.backward(nullptr); });
  EXPECT_EQ(run_on_device(net, options, data), all);
}

TEST_F(OnDevice, ParametersAreANetworks) {
  const DeviceNetworkOptions options = options_of("gru", "bf16");
  DeviceNetwork net(options);
  NetworkOptions same;
  same.time_steps = options.time_steps;
  same.batch = options.batch;
  same.layers = options.layers;
  Network<float> cpu(same);
  std::vector<float> values(cpu.values().size());
  net.copy_values(values);
  EXPECT_TRUE(std::ranges::equal(values, cpu.values()));
  ASSERT_EQ(net.layout().size(), cpu.layout().size());
  for (std::size_t i = 0; i < net.layout().size(); ++i) {
    EXPECT_EQ(net.layout()[i].name, cpu.layout()[i].name);
    EXPECT_EQ(net.layout()[i].offset, cpu.layout()[i].offset);
  }
  EXPECT_EQ(net.inputs(), 5);
  EXPECT_EQ(net.outputs(), 32);
  EXPECT_EQ(net.state_size(), 3 * (64 + 32));
  EXPECT_GE(net.standing_bytes(), static_cast<Bytes>(8 * values.size()));
}

TEST_F(OnDevice, RunsAgainWhenMemoryHasRunOut) {
  DeviceNetworkOptions options = options_of("lstm", "bf16");
  options.time_steps = 600;
  options.batch = 32;
  options.layers = {{.cell = "lstm", .input = 5, .hidden = 32}};
  options.chunk = 20;
  const DeviceData data = device_data(options);
  const DeviceResult wanted = [&] {
    DeviceNetwork net(options);
    return run_on_device(net, options, data);
  }();
  DeviceNetwork net(options);
  DeviceMemory x(static_cast<Bytes>(2 * data.x.size()));
  {
    ASSERT_GT(net.plan().prediction.peak[0], Bytes{8} << 20);
    const std::vector<DeviceMemory> others = all_but_four_mebibytes();
    expect_error(ErrorCode::out_of_memory, "cudaMallocFromPoolAsync",
                 [&] { net.forward(x.data(), nullptr); });
    expect_error(ErrorCode::invalid_argument, "backward", [&] { net.backward(nullptr); });
  }
  EXPECT_EQ(run_on_device(net, options, data), wanted);
}

TEST_F(OnDevice, StaysWithinALedgerThatOthersShare) {
  DeviceNetworkOptions options = options_of("lstm", "bf16");
  const DeviceData data = device_data(options);
  const Bytes peak = device_plan(options).plan.prediction.peak[0];
  const Ledger ledger(peak);
  options.ledger = ledger;
  DeviceNetwork net(options);
  Account other = ledger.open("another");
  other.charge(peak / 2);
  DeviceMemory x(static_cast<Bytes>(2 * data.x.size()));
  expect_error(ErrorCode::out_of_budget, "the network on the device",
               [&] { net.forward(x.data(), nullptr); });
  other.release(peak / 2);
  EXPECT_EQ(ledger.live(), 0);
  net.forward(x.data(), nullptr);
  EXPECT_GT(ledger.live(), 0);
  net.backward(nullptr);
  EXPECT_EQ(ledger.live(), 0);
}

// Copies the rows of an array, and counts the chunks that were asked for.
struct FromArray {
  const DeviceNetworkOptions& options;
  const DeviceMemory& x;
  std::int64_t asked = 0;

  DeviceInputs function() {
    return [this](std::int64_t first, std::int64_t steps, void* to, void* stream) {
      const Bytes row = options.batch * options.layers[0].input * 2;
      EXPECT_LE(first + steps, options.time_steps);
      cuda_copy(to, x.data() + first * row, steps * row, stream);
      ++asked;
    };
  }
};

TEST_F(OnDevice, InputsAreMadeChunkByChunk) {
  DeviceNetworkOptions options = options_of("gru", "bf16");
  options.time_steps = 60;
  options.layers[0].input = 40;
  const DeviceData data = device_data(options);
  DeviceMemory x(static_cast<Bytes>(2 * data.x.size())),
      of_final(static_cast<Bytes>(4 * data.of_final.size()));
  x.upload(as_number(data.x, "bf16"));
  of_final.upload(data.of_final);
  const auto* const of_last = reinterpret_cast<const float*>(of_final.data());
  DeviceNetwork whole(options);
  whole.forward(x.data(), nullptr);
  whole.backward(nullptr, nullptr, of_last);
  std::vector<float> wanted(
      static_cast<std::size_t>(whole.layout().back().offset + whole.layout().back().size));
  whole.copy_gradient(wanted);
  options.makes_inputs = true;
  for (const bool least : {false, true}) {
    options.budget = least ? least_budget_of(options) : kUnlimited;
    DeviceNetwork net(options);
    FromArray from{options, x};
    net.forward_from(from.function(), nullptr);
    net.backward(nullptr, nullptr, of_last);
    std::vector<float> found(wanted.size());
    net.copy_gradient(found);
    EXPECT_EQ(found, wanted);
    EXPECT_LE(net.report().measured.peak[0], options.budget);
    // Forward, and in the backward pass for the gradient of weights; where there is room for little more than one chunk, much oftener.
    EXPECT_EQ(from.asked == 30, !least) << from.asked;
  }
}

TEST_F(OnDevice, InputsThatCannotBeMade) {
  DeviceNetworkOptions options = options_of("lstm", "bf16");
  options.makes_inputs = true;
  const DeviceData data = device_data(options);
  DeviceMemory x(static_cast<Bytes>(2 * data.x.size()));
  DeviceNetwork net(options);
  expect_error(ErrorCode::invalid_argument, "call forward_from",
               [&] { net.forward(x.data(), nullptr); });
  expect_error(ErrorCode::invalid_argument, "needs a function",
               [&] { net.forward_from({}, nullptr); });
  const DeviceInputs fails = [](std::int64_t first, std::int64_t, void*, void*) {
    if (first > 8) fail(ErrorCode::io, "no more samples");
  };
  expect_error(ErrorCode::io, "no more samples", [&] { net.forward_from(fails, nullptr); });
  expect_error(ErrorCode::invalid_argument, "backward", [&] { net.backward(nullptr); });
  FromArray from{options, x};
  net.forward_from(from.function(), nullptr);
  net.backward(nullptr);
  EXPECT_EQ(from.asked, 12);
  options.makes_inputs = false;
  DeviceNetwork other(options);
  expect_error(ErrorCode::invalid_argument, "set makes_inputs",
               [&] { other.forward_from(from.function(), nullptr); });
}

// In a budget that has room for the states of few chunks: none of the million inputs lies in memory.
class SlowOnDevice : public OnDevice {};

TEST_F(SlowOnDevice, AMillionTimeSteps) {
  if (cuda_device_name() == "a device played by the host")
    GTEST_SKIP() << "takes minutes on a host";
  DeviceNetworkOptions options;
  options.time_steps = 1'000'000;
  options.batch = 2;
  options.layers = {{.cell = "lstm", .input = 4, .hidden = 32}};
  options.budget = Bytes{8} << 20;
  options.makes_inputs = true;
  DeviceNetwork net(options);
  const DeviceInputs inputs = [&](std::int64_t first, std::int64_t steps, void* x, void* stream) {
    cuda_fill(CudaNumber::bf16, x, static_cast<float>(first % 7) / 7 - 0.5F, steps * 2 * 4, stream);
  };
  const std::vector<float> ones(128, 1);  // h and c of both samples
  DeviceMemory final(512), of_final(512);
  of_final.upload(ones);
  net.forward_from(inputs, nullptr, nullptr, reinterpret_cast<float*>(final.data()));
  net.backward(nullptr, nullptr, reinterpret_cast<const float*>(of_final.data()));
  std::vector<float> gradient(
      static_cast<std::size_t>(net.layout().back().offset + net.layout().back().size));
  net.copy_gradient(gradient);
  EXPECT_TRUE(std::ranges::all_of(gradient, [](float x) { return std::isfinite(x); }));
  EXPECT_TRUE(std::ranges::any_of(gradient, [](float x) { return x != 0; }));
  EXPECT_LE(net.report().measured.peak[0], options.budget);
}

TEST_F(OnDevice, RefusesWhatCannotBe) {
  DeviceNetworkOptions options = options_of("lstm", "bf16");
  DeviceNetwork net(options);
  DeviceMemory memory(1 << 20);
  expect_error(ErrorCode::invalid_argument, "needs an input",
               [&] { net.forward(nullptr, nullptr); });
  expect_error(ErrorCode::invalid_argument, "x is at an address",
               [&] { net.forward(memory.data() + 2, nullptr); });
  expect_error(ErrorCode::invalid_argument, "y is at an address",
               [&] { net.forward(memory.data(), memory.data() + 8); });
  expect_error(ErrorCode::invalid_argument, "backward", [&] { net.backward(nullptr); });
  net.forward(memory.data(), nullptr);
  expect_error(ErrorCode::invalid_argument, "gradient of y",
               [&] { net.backward(memory.data() + 2); });
  net.backward(nullptr);
  expect_error(ErrorCode::invalid_argument, "backward", [&] { net.backward(nullptr); });
  std::vector<float> few(3);
  expect_error(ErrorCode::invalid_argument, "3 floats", [&] { net.set_values(few); });
  expect_error(ErrorCode::invalid_argument, "3 floats", [&] { net.copy_gradient(few); });
  options.layers[1].hidden = 33;
  expect_error(ErrorCode::invalid_argument, "layer 1 has 33 units; on a device",
               [&] { DeviceNetwork unfit(options); });
}

}  // namespace
}  // namespace ebb::test::device_network_test
