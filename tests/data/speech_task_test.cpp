// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/filled.h"
#include "tests/data/io_message.h"
#include "tests/data/made_files.h"
#include "tests/temporary_folder.h"

namespace ebb::test::speech_task_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SpeechTask : public ::testing::Test {
 protected:
  void put(const std::string& name, const std::string& content) {
    write_file(folder_.path() + "/" + name, content);
  }
  void put_three() {
    put("3_ann_5.wav", wav({16384, -32768, 0}));
    put("11_b_ob_49.wav", wav({32767}));
    put("0_ann_4.wav", wav({1, 2, 3, 4}));
  }
  std::unique_ptr<Task> make(std::int64_t steps = 0) {
    return make_task({.name = "speech", .data = folder_.path(), .steps = steps});
  }
  TemporaryFolder folder_;
};

TEST_F(SpeechTask, SequencesOfTheirOwnLength) {
  put_three();
  put("README.md", "no recording");
  const auto task = make();
  EXPECT_EQ(task->shape().steps, 4);
  EXPECT_EQ(task->shape().inputs, 1);
  EXPECT_EQ(task->shape().outputs, 12);
  EXPECT_TRUE(task->shape().classes && !task->shape().spikes && !task->shape().every_step);
  EXPECT_EQ(task->samples(Split::train), 2);
  EXPECT_EQ(task->samples(Split::test), 1);
  const Batch batch = filled(*task, Split::train, {1, 0});  // in the order of their names
  EXPECT_THAT(batch.classes, ElementsAre(3, 11));
  EXPECT_THAT(batch.lengths, ElementsAre(3, 1));
  EXPECT_THAT(batch.values, ElementsAre(.5F, 32767.F / 32768, -1.F, 0.F, 0.F, 0.F, 0.F, 0.F));
}

TEST_F(SpeechTask, StepsCut) {
  put_three();
  const auto task = make(2);
  EXPECT_EQ(task->shape().steps, 2);
  EXPECT_THAT(filled(*task, Split::train, {0, 1}).lengths, ElementsAre(1, 2));
  EXPECT_THAT(message_of([&] { make(5); }), HasSubstr("1 to 4"));
}

TEST_F(SpeechTask, FolderInside) {
  std::filesystem::create_directory(folder_.path() + "/recordings");
  put("recordings/1_ann_5.wav", wav({1}));
  put("recordings/1_ann_0.wav", wav({1}));
  EXPECT_EQ(make()->shape().outputs, 2);
}

TEST_F(SpeechTask, FilesThatDoNotFit) {
  put("1_ann_5.wav", wav({1}));
  EXPECT_THAT(io_message_of([&] { make(); }), HasSubstr("0 to 4, for testing"));
  put("1_ann_0.wav", wav({}));
  EXPECT_THAT(message_of([&] { make(); }), HasSubstr("1_ann_0.wav: the recording is empty"));
  put("1_ann_0.wav", wav({1}, 16'000));
  EXPECT_THAT(message_of([&] { make(); }), HasSubstr("others have 16000"));
  put("1_ann_0.wav", wav({1}));
  for (const std::string name : {"one.wav", "1_2.wav", "x_ann_1.wav", "1_ann_x.wav", "1_ann_.wav",
                                 "-1_ann_1.wav", "10000_ann_1.wav"}) {
    put(name, wav({1}));
    EXPECT_THAT(message_of([&] { make(); }), HasSubstr(name + ": the name must be")) << name;
    std::filesystem::remove(folder_.path() + "/" + name);
  }
  EXPECT_EQ(message_of([&] { make(); }), "no error");
}

}  // namespace
}  // namespace ebb::test::speech_task_test
