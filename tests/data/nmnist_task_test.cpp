// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/filled.h"
#include "tests/data/io_message.h"
#include "tests/data/made_files.h"
#include "tests/temporary_folder.h"

namespace ebb::test::nmnist_task_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class NmnistTask : public ::testing::Test {
 protected:
  NmnistTask() {
    put("train1K.txt", "#sample #class\r\n1\t5\r\n2\t0\r\n");
    put("test100.txt", "#sample #class\n60001\t7");
    put("1.bs2", camera_event(3, 2, 1, 999) + camera_event(33, 33, 1, 1000) +
                     camera_event(0, 0, 0, 299'999) + camera_event(0, 0, 0, 300'000));
    put("2.bs2", "");
    put("60001.bin", camera_event(1, 0, 0, 150'000));
  }
  void put(const std::string& name, const std::string& content) {
    write_file(folder_.path() + "/" + name, content);
  }
  std::unique_ptr<Task> make(std::int64_t steps = 0) {
    return make_task({.name = "nmnist", .data = folder_.path(), .steps = steps});
  }
  TemporaryFolder folder_;
};

TEST_F(NmnistTask, Milliseconds) {
  const auto task = make();
  EXPECT_EQ(task->shape().steps, 300);
  EXPECT_EQ(task->shape().inputs, 2312);
  EXPECT_EQ(task->shape().outputs, 10);
  EXPECT_TRUE(task->shape().spikes && task->shape().classes && !task->shape().every_step);
  EXPECT_EQ(task->samples(Split::train), 2);
  EXPECT_EQ(task->samples(Split::test), 1);
  const Batch batch = filled(*task, Split::train, {1, 0});
  EXPECT_THAT(batch.classes, ElementsAre(0, 5));
  EXPECT_THAT(firing(batch, task->shape(), 2, 0, 1), ElementsAre((34 + 2) * 34 + 3));
  EXPECT_THAT(firing(batch, task->shape(), 2, 1, 1), ElementsAre(2311));
  EXPECT_THAT(firing(batch, task->shape(), 2, 299, 1), ElementsAre(0));
  EXPECT_EQ(std::ranges::count_if(batch.spikes, [](std::uint64_t word) { return word != 0; }), 3);
  const Batch test = filled(*task, Split::test, {0});
  EXPECT_THAT(firing(test, task->shape(), 1, 150, 0), ElementsAre(1));
}

TEST_F(NmnistTask, OtherSteps) {
  const auto two = make(2);
  const Batch batch = filled(*two, Split::train, {0});
  EXPECT_THAT(firing(batch, two->shape(), 1, 0, 0), ElementsAre((34 + 2) * 34 + 3, 2311));
  EXPECT_THAT(firing(batch, two->shape(), 1, 1, 0), ElementsAre(0));
  const auto fine = make(3000);
  EXPECT_THAT(firing(filled(*fine, Split::train, {0}), fine->shape(), 1, 9, 0),
              ElementsAre((34 + 2) * 34 + 3));
  EXPECT_THAT(message_of([&] { make(300'001); }), HasSubstr("1 to 300000"));
}

TEST_F(NmnistTask, FilesThatDoNotFit) {
  for (const std::string line : {"1", "1\t", "x\t1", "1\t2\t3", "-1\t2"}) {
    put("test100.txt", line);
    EXPECT_THAT(message_of([&] { make(); }), HasSubstr("is not a sample and its class")) << line;
  }
  put("test100.txt", "1\t10");
  EXPECT_THAT(message_of([&] { make(); }), HasSubstr("class 10; 0 to 9"));
  put("test100.txt", "#sample #class\n\n");
  EXPECT_THAT(message_of([&] { make(); }), HasSubstr("it lists no samples"));
  put("test100.txt", "3\t1");
  EXPECT_THAT(io_message_of([&] { make(); }), HasSubstr("there is no file"));
  put("3.bs2", camera_event(34, 0, 0, 0));
  EXPECT_THAT(message_of([&] { make(); }), HasSubstr("3.bs2: the event before byte 5"));
}

}  // namespace
}  // namespace ebb::test::nmnist_task_test
