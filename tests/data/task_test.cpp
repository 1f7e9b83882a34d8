// SPDX-License-Identifier: Apache-2.0
#include "ebb/data/task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/data/io_message.h"
#include "tests/data/made_files.h"
#include "tests/temporary_folder.h"

namespace ebb::test::task_test {
namespace {

using ::testing::HasSubstr;

TEST(Tasks, NamesAndWords) {
  std::set<std::string> names;
  for (const TaskRow& row : tasks()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_FALSE(row.what.empty());
    EXPECT_GE(row.steps, 0);
  }
  EXPECT_EQ(names.size(), 11U);
  EXPECT_THAT(message_of([] { make_task({.name = "none"}); }),
              HasSubstr("there is no task 'none'; there are adding, copy, mnist"));
}

TEST(Tasks, StepsBelowZero) {
  for (const char* const name : {"adding", "copy", "fashion-mnist"}) {
    EXPECT_THAT(message_of([&] { make_task({.name = name, .steps = -1}); }), HasSubstr("-1 steps"));
  }
}

TEST(Tasks, FilesThatAreMissing) {
  const TemporaryFolder folder;
  const std::vector<std::array<std::string, 3>> expected = {
      {"mnist", "train-images-idx3-ubyte", "MNIST"},
      {"permuted-mnist", "train-images-idx3-ubyte", "MNIST"},
      {"fashion-mnist", "train-images-idx3-ubyte", "Debian package dataset-fashion-mnist"},
      {"permuted-fashion-mnist", "train-images-idx3-ubyte", "dataset-fashion-mnist"},
      {"qtdb", "QTDB_train.mat", "byin-cwi/Efficient-spiking-networks"},
      {"text", "no file .txt", "karpathy/char-rnn"},
      {"nmnist", "train1K.txt", "bamsumit/slayerPytorch"},
      {"speech", "no recording", "Jakobovski/free-spoken-digit-dataset"},
      {"npy", "x_train.npy", "numpy.save"}};
  std::size_t with_files = 0;
  for (const TaskRow& row : tasks()) with_files += row.files.empty() ? 0 : 1;
  EXPECT_EQ(with_files, expected.size());
  for (const auto& [task, file, origin] : expected) {
    const std::string message =
        io_message_of([&] { make_task({.name = task, .data = folder.path()}); });
    EXPECT_THAT(message, HasSubstr(file));
    EXPECT_THAT(message, HasSubstr(folder.path()));
    EXPECT_THAT(message, HasSubstr(origin));
    if (task.ends_with("fashion-mnist")) continue;
    EXPECT_THAT(message_of([&] { make_task({.name = task}); }),
                HasSubstr("task " + task + " needs files"));
  }
}

// Tasks without files ignore the place of data.
TEST(Tasks, SamplesThatAreNone) {
  const auto task = make_task({.name = "adding", .data = "/nowhere", .steps = 10});
  Batch batch;
  const std::vector<std::int64_t> first{0};
  const std::vector<std::int64_t> negative{-1};
  const std::vector<std::int64_t> beyond{0, 1000};
  EXPECT_EQ(message_of([&] { task->fill(Split::test, first, batch); }), "no error");
  EXPECT_THAT(message_of([&] { task->fill(Split::train, negative, batch); }),
              HasSubstr("there is no sample -1"));
  EXPECT_EQ(message_of([&] { task->fill(Split::test, beyond, batch); }),
            "there is no sample 1000 of the test set of 1000");
  EXPECT_EQ(message_of([&] { task->fill(Split::train, beyond, batch); }), "no error");
}

TEST(Tasks, BatchesThatAreTooLarge) {
  const auto task = make_task({.name = "copy", .steps = std::int64_t{1} << 40});
  Batch batch;
  const std::vector<std::int64_t> samples(std::size_t{1} << 22);
  try {
    task->fill(Split::train, samples, batch);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
  }
}

}  // namespace
}  // namespace ebb::test::task_test
