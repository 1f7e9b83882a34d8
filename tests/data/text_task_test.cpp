// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/filled.h"
#include "tests/data/made_files.h"
#include "tests/temporary_folder.h"

namespace ebb::test::text_task_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// 100 bytes of 80 different ones, so that inputs take two words: byte i is 40 + i % 80.
std::string made_text() {
  std::string text;
  for (int i = 0; i < 100; ++i) text += static_cast<char>(40 + i % 80);
  return text;
}

class TextTask : public ::testing::Test {
 protected:
  std::string path() const { return folder_.path() + "/a.txt"; }
  std::unique_ptr<Task> make(std::int64_t steps, const std::string& data) {
    return make_task({.name = "text", .data = data, .steps = steps});
  }
  TemporaryFolder folder_;
};

TEST_F(TextTask, TheNextByteAtEveryStep) {
  write_file(path(), made_text());
  const auto task = make(4, path());
  EXPECT_EQ(task->shape().steps, 4);
  EXPECT_EQ(task->shape().inputs, 80);
  EXPECT_EQ(task->shape().outputs, 80);
  EXPECT_TRUE(task->shape().spikes && task->shape().classes && task->shape().every_step);
  // 90 bytes have 22 runs of 4 and the byte to come, 10 have 2.
  EXPECT_EQ(task->samples(Split::train), 22);
  EXPECT_EQ(task->samples(Split::test), 2);
  const Batch train = filled(*task, Split::train, {0, 17, 21});
  for (std::int64_t t = 0; t < 4; ++t) {
    EXPECT_THAT(firing(train, task->shape(), 3, t, 1), ElementsAre(17 * 4 + t));
    EXPECT_EQ(train.classes[static_cast<std::size_t>(t * 3 + 1)], 17 * 4 + t + 1);
    EXPECT_EQ(train.classes[static_cast<std::size_t>(t * 3 + 2)], (21 * 4 + t + 1) % 80);
  }
  const Batch test = filled(*task, Split::test, {1});
  EXPECT_THAT(firing(test, task->shape(), 1, 0, 0), ElementsAre((90 + 4) % 80));
  EXPECT_EQ(test.classes[3], (90 + 8) % 80);
}

TEST_F(TextTask, TheTableOfAnotherText) {
  write_file(path(), "cacacacacacacacacacacacacacaca");
  const auto read = [&](const std::string& symbols) {
    return make_task({.name = "text", .data = path(), .steps = 1, .symbols = symbols});
  };
  EXPECT_EQ(make(1, path())->symbols(), "ac");
  const auto task = read("abc");
  EXPECT_EQ(task->symbols(), "abc");
  EXPECT_EQ(task->shape().outputs, 3);
  EXPECT_THAT(firing(filled(*task, Split::train, {0}), task->shape(), 1, 0, 0), ElementsAre(2));
  EXPECT_THAT(message_of([&] { read("ab"); }), HasSubstr("a.txt: byte 0 is 99, which the text"));
}

TEST_F(TextTask, SymbolsInTheOrderOfBytes) {
  write_file(path(),
             "b\xff"
             "ab\xff"
             "ab\xff"
             "ab\xff"
             "ab\xff"
             "ab\xff"
             "ab\xff"
             "ab\xff");
  const auto task = make(1, path());
  EXPECT_EQ(task->shape().outputs, 3);
  EXPECT_THAT(filled(*task, Split::train, {0, 1, 2}).classes, ElementsAre(2, 0, 1));
}

TEST_F(TextTask, TheOneFileOfAFolder) {
  write_file(path(), made_text());
  write_file(folder_.path() + "/b.md", "");
  EXPECT_EQ(make(4, folder_.path())->shape().outputs, 80);
  write_file(folder_.path() + "/b.txt", "");
  EXPECT_THAT(message_of([&] { make(4, folder_.path()); }), HasSubstr("2 files .txt"));
}

TEST_F(TextTask, TooShort) {
  write_file(path(), made_text());
  EXPECT_EQ(message_of([&] { make(9, path()); }), "no error");
  EXPECT_THAT(message_of([&] { make(10, path()); }),
              HasSubstr("sequences of 10 steps need 2 different ones and, in the last tenth, 11"));
  EXPECT_THAT(message_of([&] { make(0, path()); }), HasSubstr("sequences of 256 steps"));
  write_file(path(), "");
  EXPECT_THAT(message_of([&] { make(1, path()); }), HasSubstr("0 bytes"));
  write_file(path(), std::string(100, 'a'));
  EXPECT_THAT(message_of([&] { make(1, path()); }), HasSubstr("100 bytes, 1 of them different"));
}

}  // namespace
}  // namespace ebb::test::text_task_test
