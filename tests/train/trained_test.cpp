// SPDX-License-Identifier: Apache-2.0
// Nets after training: evaluated, run over files, and asked for text, from the checkpoint alone.
#include "ebb/train/trained.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "ebb/data/read_npy.h"
#include "ebb/train/evaluate.h"
#include "ebb/train/predict.h"
#include "ebb/train/sample.h"
#include "ebb/train/train.h"
#include "tests/data/io_message.h"
#include "tests/data/made_files.h"
#include "tests/message_of.h"
#include "tests/temporary_folder.h"
#include "tests/thorough.h"

namespace ebb::test::trained_test {
namespace {

using ::testing::HasSubstr;

TrainOptions small(const std::string& task, const std::string& cell) {
  TrainOptions options;
  options.task = task;
  options.steps = task == "copy" ? 70 : 90;  // more than a block
  options.batch = 3;
  options.layer.cell = cell;
  options.layer.hidden = 10;
  options.threads = 1;
  options.iterations = 2;
  options.test_samples = 5;  // no whole number of batches
  options.save_seconds = 0;
  return options;
}

Metrics trained(const TrainOptions& options, const std::string& folder) {
  TrainSettings settings;
  settings.out = folder;
  Ranks ranks;
  return train(options, settings, ranks).test.value();
}

NumberArray written(const std::string& path) { return map_npy(path, ""); }
std::vector<double> numbers_of(const NumberArray& array) {
  std::vector<double> all;
  with_numbers(array, [&](auto numbers) {
    for (std::size_t i = 0; i < array.count(); ++i) all.push_back(static_cast<double>(numbers[i]));
  });
  return all;
}

std::string text_of(int lines) {
  std::string text;
  for (int i = 0; i < lines; ++i) text += "the same line again.\n";
  return text;
}

TEST(Evaluate, TheBitsOfTheLastTest) {
  for (const char* cell : {"lstm", "alif", "egru"}) {
    for (const char* task : {"adding", "copy"}) {
      if (quick() && (task == std::string("adding")) != (cell == std::string("lstm"))) continue;
      const TemporaryFolder folder;
      TrainOptions options = small(task, cell);
      options.layers = 2;
      options.dropout = 0.2;
      options.pipelined = task == std::string("copy");
      options.readout = options.pipelined ? "leaky" : "linear";
      options.dtype = cell == std::string("egru") ? "double" : "float";
      if (cell == std::string("alif")) options.layer.recurrent_density = 0.5;
      const Metrics last = trained(options, folder.path());
      const Evaluation found = evaluate(load_trained(folder.path()), {});
      EXPECT_EQ(found.metrics.loss, last.loss) << cell << ", " << task;
      EXPECT_EQ(found.metrics.value, last.value) << cell << ", " << task;
      EXPECT_EQ(found.metrics.iteration, 2);
      EXPECT_EQ(found.samples, 5);
    }
  }
}

TEST(Evaluate, OtherBatchesAndSamples) {
  const TemporaryFolder folder;
  const Metrics last = trained(small("copy", "gru"), folder.path());
  const TrainedModel model = load_trained(folder.path());
  EXPECT_NEAR(evaluate(model, {.batch = 5}).metrics.loss, last.loss, 1e-12);
  EXPECT_EQ(evaluate(model, {.batch = 5}).metrics.value, last.value);
  EXPECT_EQ(evaluate(model, {.samples = 2}).samples, 2);
  EXPECT_EQ(evaluate(model, {.split = Split::train, .samples = 7}).samples, 7);
  EXPECT_THAT(message_of([&] { evaluate(model, {.samples = 0}); }), HasSubstr("nothing to"));
}

TEST(Evaluate, FromTheModelAlone) {
  const TemporaryFolder folder;
  trained(small("copy", "lstm"), folder.path());
  const Evaluation whole = evaluate(load_trained(folder.path()), {});
  // Without the optimiser, then without anything but the parameters.
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    if (entry.path().filename().string().starts_with("optimiser")) remove(entry.path());
  }
  EXPECT_EQ(evaluate(load_trained(folder.path()), {}).metrics.loss, whole.metrics.loss);
  std::filesystem::remove(folder.path() + "/train.json");
  for (const std::string& path : {folder.path(), folder.path() + "/model.safetensors"}) {
    const TrainedModel model = load_trained(path);
    EXPECT_EQ(evaluate(model, {.samples = 5}).metrics.loss, whole.metrics.loss);
  }
  EXPECT_THAT(io_message_of([&] { load_trained(folder.path() + "/nothing"); }),
              HasSubstr("no run"));
}

// Runs of other budgets leave the same file.
TEST(Trained, NotesSayWhatDecidesTheNumbersAlone) {
  TrainOptions options = small("adding", "lstm");
  const auto model = [&] {
    const TemporaryFolder folder;
    trained(options, folder.path());
    std::ifstream file(folder.path() + "/model.safetensors", std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string plain = model();
  options.budget = "50%";
  options.evaluate = 1;
  EXPECT_EQ(model(), plain);
  EXPECT_THAT(plain, HasSubstr(R"("task":"adding")"));
  EXPECT_THAT(plain, HasSubstr(R"("kind":"regression")"));
}

TEST(Trained, RefusesWhatAnEarlierVersionSaved) {
  const TemporaryFolder folder;
  Checkpoint old;
  old.options = to_json(small("copy", "lstm"));
  save_checkpoint(folder.path(), old);
  EXPECT_THAT(message_of([&] { load_trained(folder.path()); }), HasSubstr("--resume"));
}

class OnArrays : public ::testing::Test {
 protected:
  // Sums of four inputs, of 80 steps.
  OnArrays() {
    put("x_train", 4);
    put("x_test", 5);
    write_file(path("y_train"), npy("<i8", "(4,)", numbers<std::int64_t>({0, 1, 2, 1})));
    write_file(path("y_test"), npy("<i8", "(5,)", numbers<std::int64_t>({0, 1, 2, 1, 0})));
    TrainOptions options = small("npy", "gru");
    options.steps = 0;
    options.data = folder_.path();
    last_ = trained(options, run_.path());
  }
  void put(const std::string& name, std::size_t count) {
    std::vector<float> x(count * 80 * 4);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 7919 % 101) / 50 - 1;
    write_file(path(name), npy("<f4", "(" + std::to_string(count) + ",80,4)", numbers(x)));
  }
  std::string path(const std::string& name) const { return folder_.path() + "/" + name + ".npy"; }
  NumberArray predicted(PredictOptions options) {
    options.data = path("x_test");
    options.out = path("out");
    predict(load_trained(run_.path()), options);
    return written(path("out"));
  }

  TemporaryFolder folder_, run_;
  Metrics last_;
};

TEST_F(OnArrays, PredictsWhatTheTestSaw) {
  const NumberArray best = predicted({.data = {}, .out = {}, .classes = true});
  EXPECT_EQ(best.shape, (std::vector<std::int64_t>{5}));
  EXPECT_EQ(best.type, NumberType::i64);
  const std::vector<double> wanted = {0, 1, 2, 1, 0}, found = numbers_of(best);
  double right = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) right += wanted[i] == found[i] ? 1 : 0;
  EXPECT_EQ(right / 5, last_.value);
}

// Whatever the batch, and the last of every step is that of the last step.
TEST_F(OnArrays, EveryStepAndTheLast) {
  const std::vector<double> last = numbers_of(predicted({}));
  EXPECT_EQ(last.size(), 15U);
  const NumberArray all = predicted({.data = {}, .out = {}, .every_step = true, .batch = 2});
  EXPECT_EQ(all.shape, (std::vector<std::int64_t>{5, 80, 3}));
  const std::vector<double> numbers = numbers_of(all);
  for (std::size_t n = 0; n < 5; ++n) {
    for (std::size_t o = 0; o < 3; ++o) {
      EXPECT_EQ(numbers[(n * 80 + 79) * 3 + o], last[n * 3 + o]);
    }
  }
}

TEST_F(OnArrays, RefusesArraysOfAnotherWidth) {
  write_file(path("x_test"), npy("<f4", "(2,3,5)", std::string(2 * 3 * 5 * 4, '\0')));
  EXPECT_THAT(message_of([&] { predicted({}); }), HasSubstr("[2,3,5]"));
  std::vector<float> x(8);
  x[6] = std::numeric_limits<float>::infinity();
  write_file(path("x_test"), npy("<f4", "(2,4)", numbers(x)));
  EXPECT_THAT(message_of([&] { predicted({}); }), HasSubstr("sequence 0, step 1, input 2 is inf"));
  EXPECT_FALSE(std::filesystem::exists(path("out")));
  for (const auto& file : std::filesystem::directory_iterator(folder_.path())) {
    EXPECT_NE(file.path().extension(), ".tmp");
  }
}

// What is no file would be replaced, and what is read would be lost.
TEST_F(OnArrays, WritesFilesOnly) {
  const TrainedModel model = load_trained(run_.path());
  const auto told = [&](const std::string& out) {
    return message_of([&] { predict(model, {.data = path("x_test"), .out = out}); });
  };
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(told(path("pipe")), HasSubstr("is there and no file"));
  EXPECT_TRUE(std::filesystem::is_fifo(path("pipe")));
  EXPECT_THAT(told(folder_.path()), HasSubstr("is there and no file"));
  EXPECT_THAT(told(path("x_test")), HasSubstr("name another file for the predictions"));
  std::filesystem::create_symlink(path("there"), path("link"));
  EXPECT_EQ(told(path("link")), "no error");
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
  EXPECT_TRUE(std::filesystem::is_regular_file(path("there")));
}

TEST_F(OnArrays, EvaluatesOtherDataOfItsKind) {
  std::filesystem::remove(path("x_train"));
  const TrainedModel model = load_trained(run_.path());
  EXPECT_EQ(evaluate(model, {.data = folder_.path()}).metrics.loss, last_.loss);
  write_file(path("y_test"), npy("<i8", "(5,)", numbers<std::int64_t>({0, 1, 3, 1, 0})));
  EXPECT_THAT(message_of([&] { evaluate(model, {}); }), HasSubstr("classes: 4"));
  write_file(path("y_test"), npy("<f4", "(5,1)", numbers<float>({0, 1, 3, 1, 0})));
  EXPECT_THAT(message_of([&] { evaluate(model, {}); }), HasSubstr("numbers to predict at the end"));
}

TEST(Sample, GoesOnWithWhatItLearnt) {
  const TemporaryFolder folder, run;
  write_file(folder.path() + "/a.txt", text_of(60));
  TrainOptions options = small("text", "gru");
  options.data = folder.path();
  options.steps = 30;
  options.layer.hidden = 24;
  options.iterations = 150;
  options.optimiser.lr = 0.02;
  trained(options, run.path());
  const TrainedModel model = load_trained(run.path());
  const auto sampled = [&](const SampleOptions& how) {
    std::string text;
    sample(model, how, [&](char byte) { text += byte; });
    return text;
  };
  EXPECT_EQ(sampled({.text = "the same", .length = 20, .temperature = 0}), " line again.\nthe sam");
  EXPECT_EQ(sampled({.length = 8, .temperature = 0}), "the same");
  const SampleOptions hot{.length = 40, .temperature = 5, .seed = 3};
  EXPECT_EQ(sampled(hot), sampled(hot));
  EXPECT_NE(sampled(hot), sampled({.length = 40, .temperature = 5, .seed = 4}));
  EXPECT_THAT(message_of([&] { sampled({.text = "the Z"}); }),
              HasSubstr("byte 4 of the text is 90"));
  EXPECT_THAT(message_of([&] { sampled({.temperature = -1}); }), HasSubstr("0 or more"));
}

}  // namespace
}  // namespace ebb::test::trained_test
