// SPDX-License-Identifier: Apache-2.0
// Training in one process: budgets, tiers, truncation, stops and what a run leaves behind.
#include "ebb/train/train.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ebb/core/random.h"
#include "ebb/store/slow_tier.h"
#include "ebb/train/safetensors.h"
#include "tests/data/made_files.h"
#include "tests/message_of.h"
#include "tests/temporary_folder.h"
#include "tests/thorough.h"

namespace ebb::test::train_test {
namespace {

using ::testing::HasSubstr;

TrainOptions small(const std::string& task, const std::string& cell) {
  TrainOptions options;
  options.task = task;
  options.steps = task == "copy" ? 40 : 60;
  options.batch = 3;
  options.layer.cell = cell;
  options.layer.hidden = 10;
  options.threads = 1;
  options.chunk = 2;
  options.iterations = 4;
  options.test_samples = 5;  // no whole number of batches
  options.optimiser.lr = 0.01;
  options.save_seconds = 0;
  return options;
}

// Losses and norms of all iterations, then the loss of the test; the files are in `out`.
std::vector<double> curve(const TrainOptions& options, TrainSettings settings = {}) {
  std::vector<double> numbers;
  settings.line = [&numbers](const TrainLine& line) {
    numbers.push_back(line.metrics.loss);
    if (line.metrics.gradient_norm) numbers.push_back(*line.metrics.gradient_norm);
  };
  Ranks ranks;
  train(options, settings, ranks);
  return numbers;
}

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The bytes of the parameters that a run ends with.
std::string model_after(const TrainOptions& options) {
  const TemporaryFolder folder;
  TrainSettings settings;
  settings.out = folder.path();
  Ranks ranks;
  train(options, settings, ranks);
  return content(folder.path() + "/model.safetensors");
}

TEST(Train, TheSameBitsInAnyBudget) {
  for (const char* task : {"adding", "copy"}) {
    for (const char* cell : {"lstm", "lif", "egru"}) {
      if (quick() && (task == std::string("adding")) != (cell == std::string("lstm"))) continue;
      SCOPED_TRACE(std::string(task) + ", " + cell);
      TrainOptions options = small(task, cell);
      options.layers = 2;
      options.dropout = 0.2;
      options.strategy = "store_all";
      const std::vector<double> plain = curve(options);
      ASSERT_EQ(plain.size(), 9U);
      EXPECT_NE(plain[0], plain[2]);
      options.strategy = "auto";
      for (const char* budget : {"30%", "60%"}) {
        options.budget = budget;
        EXPECT_EQ(curve(options), plain) << budget;
      }
      options.budget = "40%";
      const TemporaryFolder folder;
      TrainSettings settings;
      settings.tiers = {memory_tier(1 << 15), file_tier(folder.path(), 1 << 24)};
      EXPECT_EQ(curve(options, settings), plain) << "with tiers";
    }
  }
}

TEST(Train, TruncatedIsExactOnlyWhenItReachesTheBeginning) {
  TrainOptions options = small("adding", "gru");
  options.steps = 50;
  const std::vector<double> exact = curve(options);
  for (const char* strategy : {"truncated:50", "truncated:1000"}) {
    options.strategy = strategy;
    EXPECT_EQ(curve(options), exact) << strategy;
  }
  for (const char* strategy : {"truncated:20", "truncated:49", "truncated:1"}) {
    options.strategy = strategy;
    const std::vector<double> cut = curve(options);
    // Forward is the same; the gradient is not.
    EXPECT_NEAR(cut[0], exact[0], 1e-6 * exact[0]) << strategy;
    EXPECT_GT(std::abs(cut[1] - exact[1]), 1e-4 * exact[1]) << strategy;
  }
}

TEST(Train, FloatAndDoubleAgree) {
  TrainOptions options = small("copy", "lstm");
  const std::vector<double> single = curve(options);
  options.dtype = "double";
  const std::vector<double> twice = curve(options);
  ASSERT_EQ(single.size(), twice.size());
  for (std::size_t i = 0; i < twice.size(); ++i) {
    EXPECT_NEAR(single[i], twice[i], 1e-4 * std::abs(twice[i])) << i;
    EXPECT_NE(single[i], twice[i]) << i;
  }
}

// Loss, norm and rate of each line of metrics.jsonl, without what clocks say.
std::vector<std::string> lines_of(const std::string& folder) {
  std::ifstream file(folder + "/metrics.jsonl");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line.substr(0, line.find("\"seconds\"")));
  }
  return lines;
}

// Stopped after each iteration in turn and resumed: the same files as if it had not been.
TEST(Train, GoesOnWithTheSameBits) {
  TrainOptions options = small("copy", "alif");
  options.layers = 2;
  options.dropout = 0.3;
  options.iterations = 5;
  options.evaluate = 2;
  options.schedule = parse_schedule("cosine,warmup=2");
  const TemporaryFolder straight;
  TrainSettings settings;
  settings.out = straight.path();
  Ranks ranks;
  train(options, settings, ranks);
  const std::string model = content(straight.path() + "/model.safetensors");
  for (const std::int64_t last : {1, 2, 3, 4}) {
    if (quick() && last != 3) continue;
    const TemporaryFolder folder;
    std::stop_source stop;
    TrainSettings first;
    first.out = folder.path();
    first.stop = stop.get_token();
    first.line = [&](const TrainLine& line) {
      if (line.metrics.iteration == last) stop.request_stop();
    };
    const TrainResult stopped = train(options, first, ranks);
    EXPECT_TRUE(stopped.stopped);
    EXPECT_EQ(stopped.iterations, last);
    TrainSettings second;
    second.out = folder.path();
    second.resume = true;
    second.planned = [&](const TrainPlan& plan) { EXPECT_EQ(plan.first, last); };
    const TrainResult done = train(checkpoint_options(folder.path()), second, ranks);
    EXPECT_FALSE(done.stopped);
    EXPECT_EQ(done.iterations, 5);
    EXPECT_EQ(content(folder.path() + "/model.safetensors"), model) << last;
    EXPECT_EQ(lines_of(folder.path()), lines_of(straight.path())) << last;
  }
}

// Predicted and measured, of the last iteration before the checkpoint.
TEST(Train, LeavesItsReportBesideTheCheckpoint) {
  TrainOptions options = small("adding", "gru");
  options.iterations = 1;
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/report.json";
  std::ofstream(path) << "of a run before";
  TrainSettings settings;
  settings.out = folder.path();
  settings.planned = [&](const TrainPlan&) { EXPECT_FALSE(std::filesystem::exists(path)); };
  Ranks ranks;
  const TrainResult first = train(options, settings, ranks);
  EXPECT_EQ(content(path), first.report.json());
  settings.planned = nullptr;
  settings.resume = true;
  const std::string before = content(path);
  EXPECT_EQ(train(options, settings, ranks).iterations, 1);  // all are done
  EXPECT_EQ(content(path), before);
  options.iterations = 2;
  const TrainResult done = train(options, settings, ranks);
  EXPECT_EQ(content(path), done.report.json());
  EXPECT_NE(content(path), before);
}

// What the caller has loaded is all that is needed.
TEST(Train, GoesOnFromALoadedCheckpointWithoutItsFiles) {
  TrainOptions options = small("adding", "gru");
  const TemporaryFolder straight, folder;
  TrainSettings settings;
  settings.out = straight.path();
  Ranks ranks;
  train(options, settings, ranks);
  settings.out = folder.path();
  options.iterations = 2;
  train(options, settings, ranks);
  Checkpoint from = load_checkpoint(folder.path());
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    if (entry.path().filename() != "metrics.jsonl") std::filesystem::remove(entry.path());
  }
  options.iterations = 4;
  const TrainResult done = train(options, settings, ranks, std::move(from));
  EXPECT_EQ(done.iterations, 4);
  EXPECT_EQ(content(folder.path() + "/model.safetensors"),
            content(straight.path() + "/model.safetensors"));
  EXPECT_EQ(lines_of(folder.path()).size(), lines_of(straight.path()).size() + 1);  // a test more
}

// Asked to stop by another thread, most likely within an iteration: the parameters are those of the
// last whole one.
TEST(Train, AStopAtAnyMoment) {
  TrainOptions options = small("adding", "lstm");
  options.steps = 2000;
  const TemporaryFolder straight, folder;
  TrainSettings settings;
  settings.out = straight.path();
  Ranks ranks;
  train(options, settings, ranks);

  std::stop_source stop;
  std::thread asks;
  TrainSettings first;
  first.out = folder.path();
  first.stop = stop.get_token();
  first.line = [&](const TrainLine& line) {
    if (line.metrics.iteration == 2) {
      asks = std::thread([&stop] {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        stop.request_stop();
      });
    }
    if (line.metrics.iteration == 3) asks.join();  // the last one never begins
  };
  const TrainResult stopped = train(options, first, ranks);
  if (asks.joinable()) asks.join();
  EXPECT_TRUE(stopped.stopped);
  TrainSettings second;
  second.out = folder.path();
  second.resume = true;
  train(checkpoint_options(folder.path()), second, ranks);
  const std::string model = content(straight.path() + "/model.safetensors");
  EXPECT_EQ(content(folder.path() + "/model.safetensors"), model);
  EXPECT_EQ(lines_of(folder.path()), lines_of(straight.path()));

  // Done already: nothing changes.
  const TrainResult again = train(checkpoint_options(folder.path()), second, ranks);
  EXPECT_EQ(again.iterations, 4);
  EXPECT_FALSE(again.stopped);
  EXPECT_EQ(content(folder.path() + "/model.safetensors"), model);
  EXPECT_EQ(lines_of(folder.path()), lines_of(straight.path()));
}

// Sequences of different lengths, some over before the last of several windows begins.
TEST(Train, Lengths) {
  const TemporaryFolder folder;
  const Random random(5);
  std::vector<float> x(std::size_t{12} * 30 * 2);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random.normal(i));
  const std::string lengths = "\36\1\5\12\36\24\3\17\35\2\11\4";
  const std::string classes("\0\1\2\0\1\2\0\1\2\0\1\2", 12);
  write_file(folder.path() + "/x_train.npy", npy("<f4", "(12, 30, 2)", numbers(x)));
  write_file(folder.path() + "/y_train.npy", npy("|u1", "(12,)", classes));
  write_file(folder.path() + "/lengths_train.npy", npy("|u1", "(12,)", lengths));
  TrainOptions options = small("npy", "gru");
  options.data = folder.path();
  options.steps = 0;
  options.layers = 2;
  options.dropout = 0.3;
  const std::vector<double> dropping = curve(options);
  options.budget = "40%";
  EXPECT_EQ(curve(options), dropping);
  options.dropout = 0;  // whose masks would not be the same in windows
  options.budget = "unlimited";
  const std::vector<double> plain = curve(options);
  EXPECT_NE(plain, dropping);
  options.strategy = "truncated:30";
  EXPECT_EQ(curve(options), plain);
  options.strategy = "truncated:8";
  const std::vector<double> cut = curve(options);
  EXPECT_NEAR(cut[0], plain[0], 1e-6 * plain[0]);
  EXPECT_NE(cut[1], plain[1]);
}

TEST(Train, GoesOnWithTheSameDataUnlessItIsToldTo) {
  const TemporaryFolder folder, elsewhere, out;
  const auto make = [](const TemporaryFolder& to, char last) {
    const std::string classes = std::string("\0\1\2\0\1", 5) + last;
    write_file(to.path() + "/x_train.npy",
               npy("<f4", "(6, 5, 2)", numbers(std::vector<float>(60, 0.5F))));
    write_file(to.path() + "/y_train.npy", npy("|u1", "(6,)", classes));
  };
  make(folder, '\2');
  make(elsewhere, '\2');
  TrainOptions options = small("npy", "gru");
  options.data = folder.path();
  options.steps = 0;
  options.iterations = 2;
  TrainSettings settings;
  settings.out = out.path();
  Ranks ranks;
  train(options, settings, ranks);
  EXPECT_EQ(load_checkpoint(out.path()).data.files, 2);

  settings.resume = true;
  options.data = elsewhere.path();  // the same in another place
  options.iterations = 3;
  EXPECT_EQ(train(options, settings, ranks).iterations, 3);
  make(elsewhere, '\1');
  options.iterations = 4;
  const std::string before = content(out.path() + "/metrics.jsonl");
  EXPECT_THAT(
      message_of([&] { train(options, settings, ranks); }),
      ::testing::AllOf(HasSubstr("the data are not those that the checkpoint was trained "
                                 "with: 2 files of "),
                       HasSubstr("as before, with other content"), HasSubstr("--data-changed-ok")));
  EXPECT_EQ(content(out.path() + "/metrics.jsonl"), before);
  settings.data_changed_ok = true;
  EXPECT_EQ(train(options, settings, ranks).iterations, 4);
  settings.data_changed_ok = false;  // the checkpoint has the new ones now
  options.iterations = 5;
  EXPECT_EQ(train(options, settings, ranks).iterations, 5);
}

TEST(Train, SaysThatItDiverged) {
  TrainOptions options = small("adding", "rnn_relu");
  options.optimiser = optimiser_defaults(OptimiserKind::sgd);
  options.optimiser.lr = 1e6;
  options.iterations = 50;
  const std::string message = message_of([&] { curve(options); });
  EXPECT_THAT(message, HasSubstr("training diverged in iteration "));
  EXPECT_THAT(message, HasSubstr("lower lr or set clip"));
}

std::vector<float> tensor(const std::string& file, const std::string& name) {
  const Safetensors all = read_safetensors(std::as_bytes(std::span(file)), "model");
  const TensorView& own = find_tensor(all.tensors, name);
  std::vector<float> numbers(own.bytes.size() / sizeof(float));
  copy_tensor(own, std::span(numbers));
  return numbers;
}

// adamw would shrink them.
TEST(Train, WhatDoesNotLearnStays) {
  TrainOptions options = small("copy", "alif");
  options.readout = "leaky";
  options.layer.tau_mem = 17;
  options.optimiser = optimiser_defaults(OptimiserKind::adamw);
  options.optimiser.lr = 0.1;
  options.optimiser.weight_decay = 0.5;
  const std::string fixed = model_after(options);
  EXPECT_THAT(tensor(fixed, "tau_mem_l0"), ::testing::Each(17.F));
  EXPECT_THAT(tensor(fixed, "threshold_l0"), ::testing::Each(1.F));
  EXPECT_THAT(tensor(fixed, "beta_l0"), ::testing::Each(1.8F));
  EXPECT_THAT(tensor(fixed, "readout.tau_mem"), ::testing::Each(17.F));
  options.layer.train_tau = options.layer.train_threshold = true;
  const std::string learnt = model_after(options);
  EXPECT_THAT(tensor(learnt, "tau_mem_l0"), ::testing::Each(::testing::Ne(17.F)));
  EXPECT_THAT(tensor(learnt, "threshold_l0"), ::testing::Each(::testing::Ne(1.F)));
  EXPECT_THAT(tensor(learnt, "readout.tau_mem"), ::testing::Each(::testing::Ne(17.F)));
}

TEST(Train, EpochsNeedSamplesThatEnd) {
  TrainOptions options = small("adding", "lstm");
  options.iterations = 0;
  options.epochs = 2;
  EXPECT_THAT(message_of([&] { curve(options); }), HasSubstr("never end; give iterations"));
}

TEST(Train, KeepsToItsBudget) {
  TrainOptions options = small("adding", "lstm");
  options.steps = 300;
  options.budget = "20%";
  Ranks ranks;
  TrainPlan planned;
  TrainSettings settings;
  settings.planned = [&planned](const TrainPlan& plan) { planned = plan; };
  const TrainResult result = train(options, settings, ranks);
  EXPECT_EQ(planned.budget, static_cast<Bytes>(0.2 * static_cast<double>(planned.plain)));
  EXPECT_LE(planned.peak, planned.budget);
  EXPECT_LE(result.report.measured.peak.front(), planned.budget);
  options.budget = "1";
  try {
    curve(options);
    ADD_FAILURE() << "one byte was enough";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::infeasible_budget);
  }
}

}  // namespace
}  // namespace ebb::test::train_test
