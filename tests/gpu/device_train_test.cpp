// SPDX-License-Identifier: Apache-2.0
// Training on a CUDA device: as on the CPU, the same bits in every budget and after a stop, on sequences of any length.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "ebb/core/error.h"
#include "ebb/core/random.h"
#include "ebb/device/device_memory.h"
#include "ebb/store/slow_tier.h"
#include "ebb/train/learner.h"
#include "ebb/train/train.h"
#include "tests/data/made_files.h"
#include "tests/message_of.h"
#include "tests/temporary_folder.h"

namespace ebb::test::device_train_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class DeviceTrain : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = cuda_missing(); !missing.empty()) GTEST_SKIP() << missing;
  }
};

TrainOptions small(const std::string& task, const std::string& cell) {
  TrainOptions options;
  options.task = task;
  options.steps = 40;
  options.batch = 3;
  options.layer.cell = cell;
  options.layer.hidden = 32;
  options.threads = 1;
  options.chunk = 4;
  options.iterations = 4;
  options.test_samples = 5;  // no whole number of batches
  options.optimiser.lr = 0.01;
  options.save_seconds = 0;
  options.device = "cuda";
  return options;
}

// Losses and norms of all iterations, then the loss of the test.
std::vector<double> curve(const TrainOptions& options, TrainSettings settings, Ranks& ranks) {
  std::vector<double> numbers;
  settings.line = [&numbers](const TrainLine& line) {
    numbers.push_back(line.metrics.loss);
    if (line.metrics.gradient_norm) numbers.push_back(*line.metrics.gradient_norm);
  };
  train(options, settings, ranks);
  return numbers;
}
std::vector<double> curve(const TrainOptions& options, const TrainSettings& settings = {}) {
  Ranks ranks;
  return curve(options, settings, ranks);
}

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void expect_near(const std::vector<double>& found, const std::vector<double>& wanted,
                 double tolerance) {
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_NEAR(found[i], wanted[i], tolerance * std::abs(wanted[i])) << i;
  }
}

// What is said by an error of that code.
std::string refusal(ErrorCode code, const TrainOptions& options) {
  try {
    curve(options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "nothing is refused";
}

// Sequences of bits of several lengths, with a class at the end of each.
class Spikes {
 public:
  Spikes() {
    constexpr std::size_t samples = 8, steps = 20, inputs = 70;
    std::string bits(samples * steps * inputs, '\0');
    const Random random(3);
    for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = random.uniform(i) < 0.2 ? '\1' : '\0';
    for (const char* const part : {"train", "test"}) {
      put(std::string("x_") + part, npy("|b1", "(8, 20, 70)", bits));
      put(std::string("y_") + part, npy("|u1", "(8,)", std::string("\0\1\2\0\1\2\0\1", 8)));
      put(std::string("lengths_") + part, npy("|u1", "(8,)", "\x14\x02\x0b\x14\x01\x13\x08\x14"));
    }
  }
  TrainOptions options(const std::string& cell) const {
    TrainOptions own = small("npy", cell);
    own.data = folder_.path();
    own.steps = 0;
    return own;
  }

 private:
  void put(const std::string& name, const std::string& content) {
    write_file(folder_.path() + "/" + name + ".npy", content);
  }
  TemporaryFolder folder_;
};

TEST_F(DeviceTrain, LearnsAsTheCpuDoes) {
  for (const char* const task : {"adding", "copy"}) {
    for (const char* const cell : {"lstm", "gru", "rnn"}) {
      SCOPED_TRACE(std::string(task) + ", " + cell);
      TrainOptions options = small(task, cell);
      options.layers = 2;
      const std::vector<double> device = curve(options);
      options.device = "cpu";
      expect_near(device, curve(options), 2e-3);
    }
  }
}

// A spike more or less is a jump; the first iteration shows that all is where it belongs.
TEST_F(DeviceTrain, OfSpikesOfAnyLengthLearnsAsTheCpuDoes) {
  const Spikes spikes;
  for (const char* const cell : {"lif", "alif", "adlif", "egru", "lstm"}) {
    for (const char* const readout : {"linear", "leaky"}) {
      SCOPED_TRACE(std::string(cell) + ", " + readout);
      TrainOptions options = spikes.options(cell);
      options.readout = readout;
      options.iterations = 1;
      options.layer.weight_scale = 4;  // or hardly a unit fires
      std::vector<double> device = curve(options);
      options.device = "cpu";
      expect_near(device, curve(options), 1e-2);
    }
  }
}

TEST_F(DeviceTrain, OptimisersAreTheCpus) {
  for (const OptimiserKind kind : {OptimiserKind::sgd, OptimiserKind::adam, OptimiserKind::adamw}) {
    SCOPED_TRACE(std::string(to_text(kind)));
    TrainOptions options = small("adding", "gru");
    options.optimiser = optimiser_defaults(kind);
    options.optimiser.lr = 0.02;
    options.optimiser.weight_decay = 0.1;
    options.optimiser.clip = 0.5;
    if (kind == OptimiserKind::sgd) options.optimiser.momentum = 0.8;
    const std::vector<double> device = curve(options);
    options.dtype = "f16";
    const std::vector<double> half = curve(options);
    options.dtype = "float";
    options.device = "cpu";
    const std::vector<double> cpu = curve(options);
    expect_near(device, cpu, 2e-3);
    expect_near(half, cpu, 3e-2);
  }
}

TEST_F(DeviceTrain, WhatDoesNotLearnStays) {
  const TemporaryFolder folder;
  const Spikes spikes;
  TrainOptions options = spikes.options("lif");
  options.optimiser = optimiser_defaults(OptimiserKind::adamw);
  options.optimiser.weight_decay = 0.5;
  TrainSettings settings;
  settings.out = folder.path();
  curve(options, settings);
  const Checkpoint end = load_checkpoint(folder.path());
  for (const char* const name : {"tau_mem_l0", "threshold_l0"}) {
    std::vector<float> numbers(32);
    copy_tensor(find_tensor(end.model, name), std::span(numbers));
    for (const float number : numbers) EXPECT_EQ(number, numbers[0]) << name;
    EXPECT_GE(numbers[0], 1.F) << name;
  }
}

TEST_F(DeviceTrain, TheSameBitsInAnyBudget) {
  const Spikes spikes;
  for (TrainOptions options : {small("copy", "lstm"), spikes.options("alif")}) {
    options.chunk = 1;
    options.dtype = "bf16";
    options.strategy = "store_all";
    const std::vector<double> plain = curve(options);
    EXPECT_NE(plain[0], plain[2]);
    options.strategy = "auto";
    for (const char* const budget : {"70%", "90%"}) {
      options.budget = budget;
      EXPECT_EQ(curve(options), plain) << budget;
    }
    options.budget = "70%";
    options.host_budget = "1MiB";
    EXPECT_EQ(curve(options), plain) << "with the host's memory";
  }
}

// The chunk is chosen from the budget that training began with.
TEST_F(DeviceTrain, AnotherBudgetLaterGivesTheSameBits) {
  TrainOptions options = small("adding", "gru");
  options.steps = 300;
  options.chunk = 0;
  options.budget = "25%";
  const TemporaryFolder whole, parts;
  TrainSettings settings;
  settings.out = whole.path();
  curve(options, settings);
  settings.out = parts.path();
  options.iterations = 2;
  curve(options, settings);
  options = checkpoint_options(parts.path());
  options.iterations = 4;
  options.budget = "unlimited";
  settings.resume = true;
  curve(options, settings);
  EXPECT_EQ(content(parts.path() + "/model.safetensors"),
            content(whole.path() + "/model.safetensors"));
  const std::int64_t kept = options.device_chunk;
  EXPECT_GT(kept, 0);
  options.device_chunk = 0;  // it would have been another one
  Ranks ranks;
  EXPECT_GT(plan_training(options, {}, ranks).chunk, kept);
}

// A share is of what keeping everything takes, whatever the chunk that the run keeps.
TEST_F(DeviceTrain, SharesMeanTheSameWhenARunGoesOn) {
  TrainOptions options = small("adding", "lstm");
  options.steps = 400;
  options.chunk = 0;
  for (const char* const budget : {"5%", "20%"}) {
    SCOPED_TRACE(budget);
    options.budget = budget;
    const TemporaryFolder folder;
    TrainSettings settings;
    settings.out = folder.path();
    TrainPlan begun, later;
    settings.planned = [&](const TrainPlan& plan) { begun = plan; };
    curve(options, settings);
    TrainOptions goes_on = checkpoint_options(folder.path());
    EXPECT_GT(goes_on.device_chunk, 0);
    goes_on.iterations = 5;
    settings.resume = true;
    settings.planned = [&](const TrainPlan& plan) { later = plan; };
    curve(goes_on, settings);
    EXPECT_EQ(later.plain, begun.plain);
    EXPECT_EQ(later.budget, begun.budget);
    EXPECT_EQ(later.chunk, begun.chunk);
    EXPECT_EQ(later.peak, begun.peak);
  }
}

// A mean over many targets has gradients that numbers of half precision are too far apart for.
TEST_F(DeviceTrain, HalfPrecisionHasNumbersForSmallGradients) {
  LearnerSetup setup;
  setup.options = small("adding", "gru");
  setup.options.dtype = "f16";
  setup.options.optimiser.clip = 0;
  setup.shape.steps = setup.options.steps;
  setup.shape.inputs = 2;
  setup.shape.outputs = 1;
  setup.shape.classes = false;
  setup.shape.every_step = false;
  Batch batch;
  const Random random(5);
  for (std::uint64_t i = 0; i < std::uint64_t{40} * 3 * 2; ++i)
    batch.values.push_back(static_cast<float>(random.uniform(i)));
  batch.targets = {1, 2, 3};
  for (const char* const strategy : {"auto", "truncated:16"}) {
    setup.options.strategy = strategy;
    const std::unique_ptr<Learner<float>> learner = make_learner<float>(setup, batch);
    const auto norm = [&](double scale) {
      learner->learn(batch, scale, 0, {});
      return learner->step(0);
    };
    const double whole = norm(1);
    EXPECT_GT(whole, 0.1);
    EXPECT_NEAR(norm(1e-9), 1e-9 * whole, 1e-12 * whole);
  }
}

TEST_F(DeviceTrain, TruncatedGradientsAreTheCpus) {
  for (const char* const strategy : {"truncated:16", "truncated:1000"}) {
    TrainOptions options = small("copy", "gru");
    options.strategy = strategy;
    const std::vector<double> device = curve(options);
    options.device = "cpu";
    expect_near(device, curve(options), 2e-3);
  }
}

std::string model_after(TrainOptions options, const std::vector<std::string>& devices) {
  const TemporaryFolder folder;
  TrainSettings settings;
  settings.out = folder.path();
  for (std::size_t k = 0; k < devices.size(); ++k) {
    options.iterations = 2 * static_cast<std::int64_t>(k + 1);
    options.device = devices[k];
    settings.resume = k > 0;
    curve(options, settings);
  }
  return content(folder.path() + "/model.safetensors");
}

TEST_F(DeviceTrain, GoesOnWithTheSameBits) {
  for (const OptimiserKind kind : {OptimiserKind::sgd, OptimiserKind::adam}) {
    TrainOptions options = small("adding", "gru");
    options.optimiser = optimiser_defaults(kind);
    options.optimiser.lr = 0.01;
    if (kind == OptimiserKind::sgd) options.optimiser.momentum = 0.9;
    const std::string stopped = model_after(options, {"cuda", "cuda:0"});
    const TemporaryFolder folder;
    TrainSettings settings;
    settings.out = folder.path();
    curve(options, settings);
    EXPECT_EQ(stopped, content(folder.path() + "/model.safetensors"));
  }
}

TEST_F(DeviceTrain, GoesOnOnTheOtherKindOfDevice) {
  for (const bool begins_on_cpu : {false, true}) {
    const TemporaryFolder folder;
    TrainOptions options = small("adding", "gru");
    if (!begins_on_cpu) {
      options.dtype = "tf32";  // which the CPU takes as float
      options.host_budget = "1MiB";
    }
    const std::vector<double> whole = curve(options);
    TrainSettings settings;
    settings.out = folder.path();
    options.iterations = 2;
    options.device = begins_on_cpu ? "cpu" : "cuda";
    std::vector<double> parts = curve(options, settings);
    parts.pop_back();  // the test
    options = checkpoint_options(folder.path());
    options.iterations = 4;
    options.device = begins_on_cpu ? "cuda" : "cpu";
    settings.resume = true;
    std::string trained_on;
    settings.planned = [&](const TrainPlan& plan) { trained_on = plan.trained_on; };
    for (const double number : curve(options, settings)) parts.push_back(number);
    EXPECT_EQ(trained_on, begins_on_cpu ? "cpu" : "cuda");
    expect_near(parts, whole, 5e-3);
    options.device = "auto";  // where it was last
    options.iterations = 5;
    trained_on = "nothing";
    curve(options, settings);
    EXPECT_EQ(trained_on, begins_on_cpu ? "" : "cpu");
  }
}

TEST_F(DeviceTrain, StopsAndKeepsWhatIsWhole) {
  const TemporaryFolder folder;
  TrainOptions options = small("adding", "lstm");
  options.iterations = 1000;
  std::stop_source source;
  TrainSettings settings;
  settings.out = folder.path();
  settings.stop = source.get_token();
  settings.line = [&](const TrainLine& line) {
    if (line.metrics.iteration == 3) source.request_stop();
  };
  Ranks ranks;
  const TrainResult result = train(options, settings, ranks);
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.iterations, 3);
  EXPECT_EQ(load_checkpoint(folder.path()).iteration, 3);
}

TEST_F(DeviceTrain, SaysWhatItTakes) {
  TrainOptions options = small("copy", "lstm");
  options.budget = "80%";
  TrainSettings settings;
  TrainPlan plan;
  settings.planned = [&](const TrainPlan& own) { plan = own; };
  Ranks ranks;
  const TrainResult result = train(options, settings, ranks);
  EXPECT_THAT(plan.device, HasSubstr("cuda:0, "));
  EXPECT_LE(plan.peak, plan.budget);
  EXPECT_LE(result.report.measured.peak[0], plan.budget);
  EXPECT_GT(plan.beside, 8 * plan.parameters);
  EXPECT_LT(plan.budget, plan.plain);
}

TEST_F(DeviceTrain, RefusesWhatADeviceDoesNotRun) {
  const auto refused = [](const char* what, TrainOptions options, const auto& change) {
    change(options);
    EXPECT_THAT(message_of([&] { curve(options); }), HasSubstr(what));
    options.device = "auto";  // the CPU runs it
    options.iterations = 1;
    std::string passed_over;
    TrainSettings settings;
    settings.planned = [&](const TrainPlan& plan) { passed_over = plan.passed_over; };
    EXPECT_EQ(curve(options, settings).size(), 3U) << what;
    if (options.dtype != "double") {
      EXPECT_THAT(passed_over, HasSubstr(what));
    }
  };
  const TrainOptions lstm = small("adding", "lstm");
  refused("dropout is set", lstm, [](TrainOptions& o) { o.dropout = 0.1; });
  refused("pipelined is set", lstm, [](TrainOptions& o) { o.pipelined = true; });
  refused("dtype is double", lstm, [](TrainOptions& o) { o.dtype = "double"; });
  refused("synaptic currents", small("adding", "lif"),
          [](TrainOptions& o) { o.layer.synaptic = true; });
  refused("max_activity", small("adding", "lif"),
          [](TrainOptions& o) { o.layer.max_activity = 0.5; });
  const Spikes spikes;
  refused("rnn_relu and sequences have different lengths", spikes.options("rnn_relu"),
          [](TrainOptions&) {});
  for (const bool learns : {false, true}) {
    refused("adlif, whose `a` learns or is not within 0 to 1, and sequences have different lengths",
            spikes.options("adlif"), [&](TrainOptions& o) {
              if (learns) {
                o.layer.train_tau = true;
              } else {
                o.layer.a = -0.5;
              }
            });
  }
  TrainOptions other = lstm;
  other.layer.hidden = 100;
  other.dtype = "bf16";
  other.device = "auto";
  EXPECT_THAT(refusal(ErrorCode::invalid_argument, other),
              AllOf(HasSubstr("dtype is bf16, which only a GPU computes with"),
                    HasSubstr("must be a multiple of 32"), HasSubstr("train on the cpu")));
  other = lstm;
  other.device = "cuda:77";
  EXPECT_THAT(refusal(ErrorCode::unavailable, other),
              HasSubstr("device is cuda:77, but there are"));
  TrainSettings settings;
  settings.tiers = {memory_tier(1 << 20)};
  EXPECT_THAT(message_of([&] { curve(lstm, settings); }), HasSubstr("give host_budget instead"));
  other = lstm;
  other.budget = "1%";
  EXPECT_THAT(refusal(ErrorCode::infeasible_budget, other), HasSubstr("%"));
}

// Run by as many processes as there are; alone it shows the same.
TEST_F(DeviceTrain, ProcessesLearnTogether) {
  Ranks ranks;
  TrainOptions options = small("adding", "gru");
  const std::vector<double> device = curve(options, {}, ranks);
  options.strategy = "truncated:16";
  const std::vector<double> cut = curve(options, {}, ranks);
  options.device = "cpu";
  expect_near(cut, curve(options, {}, ranks), 2e-3);
  options.strategy = "auto";
  expect_near(device, curve(options, {}, ranks), 2e-3);
}

}  // namespace
}  // namespace ebb::test::device_train_test
