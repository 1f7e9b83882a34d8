// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/data/filled.h"
#include "tests/data/io_message.h"
#include "tests/data/made_files.h"
#include "tests/temporary_folder.h"

namespace ebb::test::npy_task_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// x: two samples of three steps of two inputs, 0 to 11.
class NpyTask : public ::testing::Test {
 protected:
  NpyTask() {
    put("x_train",
        npy("<i2", "(2, 3, 2)", numbers<std::int16_t>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})));
    put("y_train", npy("<i8", "(2,)", numbers<std::int64_t>({4, 1})));
  }
  void put(const std::string& name, const std::string& content) {
    write_file(folder_.path() + "/" + name + ".npy", content);
  }
  std::unique_ptr<Task> make(std::int64_t steps = 0) {
    return make_task({.name = "npy", .data = folder_.path(), .steps = steps});
  }
  std::string refusal(std::int64_t steps = 0) {
    return message_of([&] { make(steps); });
  }
  TemporaryFolder folder_;
};

TEST_F(NpyTask, ClassesAtTheEnd) {
  const auto task = make();
  EXPECT_EQ(task->shape().steps, 3);
  EXPECT_EQ(task->shape().inputs, 2);
  EXPECT_EQ(task->shape().outputs, 5);
  EXPECT_TRUE(task->shape().classes && !task->shape().spikes && !task->shape().every_step);
  EXPECT_EQ(task->samples(Split::train), 2);
  EXPECT_EQ(task->samples(Split::test), 0);
  const Batch batch = filled(*task, Split::train, {1, 0});
  EXPECT_THAT(batch.values, ElementsAre(6, 7, 0, 1, 8, 9, 2, 3, 10, 11, 4, 5));
  EXPECT_THAT(batch.classes, ElementsAre(1, 4));
  EXPECT_THAT(batch.lengths, IsEmpty());
}

TEST_F(NpyTask, ClassesAtEveryStepWithLengths) {
  put("y_train", npy("<i4", "(2, 3)", numbers<std::int32_t>({0, 1, 2, -1, 3, 0})));
  put("lengths_train", npy("|u1", "(2,)", "\3\2"));
  const auto task = make();
  EXPECT_TRUE(task->shape().every_step);
  EXPECT_EQ(task->shape().outputs, 4);
  const Batch batch = filled(*task, Split::train, {0, 1});
  EXPECT_THAT(batch.classes, ElementsAre(0, -1, 1, 3, 2, -1));
  EXPECT_THAT(batch.lengths, ElementsAre(3, 2));
  EXPECT_THAT(batch.values, ElementsAre(0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 0, 0));
  EXPECT_THAT(filled(*make(2), Split::train, {1, 0}).classes, ElementsAre(-1, 0, 3, 1));
  EXPECT_THAT(filled(*make(2), Split::train, {1, 0}).lengths, ElementsAre(2, 2));
}

// The same numbers as the fixture's, in the other orders and in half precision.
TEST_F(NpyTask, OrdersAndHalves) {
  const std::vector<float> wanted = filled(*make(), Split::train, {1, 0}).values;
  const std::string fortran = "'fortran_order': True, 'shape': (2, 3, 2)}";
  put("x_train",
      npy_with("{'descr': '|u1', " + fortran, std::string("\0\6\2\10\4\12\1\7\3\11\5\13", 12)));
  EXPECT_EQ(filled(*make(), Split::train, {1, 0}).values, wanted);
  std::string halves;
  for (const std::uint64_t bits :
       std::initializer_list<std::uint64_t>{0x0000, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600,
                                            0x4700, 0x4800, 0x4880, 0x4900, 0x4980}) {
    halves += big(bits, 2);
  }
  put("x_train", npy(">f2", "(2, 3, 2)", halves));
  EXPECT_EQ(filled(*make(), Split::train, {1, 0}).values, wanted);
  put("y_train", npy_with("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3)}",
                          std::string("\0\3\1\4\2\5", 6)));
  EXPECT_THAT(filled(*make(), Split::train, {0, 1}).classes, ElementsAre(0, 3, 1, 4, 2, 5));
  put("y_train", npy_with("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2)}",
                          numbers<float>({1, 3, 2, 4})));
  EXPECT_THAT(filled(*make(), Split::train, {0, 1}).targets, ElementsAre(1, 2, 3, 4));
}

TEST_F(NpyTask, Targets) {
  put("y_train", npy("<f8", "(2, 2)", numbers<double>({.5, 1, 2, 3})));
  EXPECT_EQ(make()->shape().outputs, 2);
  EXPECT_FALSE(make()->shape().classes || make()->shape().every_step);
  EXPECT_THAT(filled(*make(), Split::train, {1, 0}).targets, ElementsAre(2, 3, .5F, 1));
  put("y_train", npy("<f4", "(2, 3, 1)", numbers<float>({1, kNan, 3, 4, 5, 6})));
  put("lengths_train", npy("|i1", "(2,)", "\3\2"));
  const std::vector<float> targets = filled(*make(), Split::train, {0, 1}).targets;
  ASSERT_EQ(targets.size(), 6U);
  EXPECT_EQ(targets[0], 1);
  EXPECT_TRUE(std::isnan(targets[2]));
  EXPECT_EQ(targets[3], 5);
  EXPECT_TRUE(std::isnan(targets[5]));  // beyond its length
}

TEST_F(NpyTask, OnlyBoolInputsAreSpikes) {
  put("x_train", npy("|u1", "(2, 3)", std::string("\0\1\1\0\1\0", 6)));
  EXPECT_FALSE(make()->shape().spikes);
  EXPECT_EQ(make()->shape().inputs, 1);
  EXPECT_THAT(filled(*make(), Split::train, {0}).values, ElementsAre(0, 1, 1));
  std::string bits(2 * 1 * 70, '\0');
  bits[3] = 1;
  bits[69] = 1;
  bits[70] = 1;
  put("x_train", npy("|b1", "(2, 1, 70)", bits));
  const auto task = make();
  EXPECT_TRUE(task->shape().spikes);
  const Batch batch = filled(*task, Split::train, {1, 0});
  EXPECT_THAT(firing(batch, task->shape(), 2, 0, 0), ElementsAre(0));
  EXPECT_THAT(firing(batch, task->shape(), 2, 0, 1), ElementsAre(3, 69));
}

TEST_F(NpyTask, TestSet) {
  put("x_test", npy("<f4", "(1, 3, 2)", numbers<float>({1, 2, 3, 4, 5, 6})));
  EXPECT_THAT(io_message_of([&] { make(); }), HasSubstr("y_test.npy"));
  put("y_test", npy("|u1", "(1,)", "\x9"));
  const auto task = make();
  EXPECT_EQ(task->samples(Split::test), 1);
  EXPECT_EQ(task->shape().outputs, 10);
  EXPECT_THAT(filled(*task, Split::test, {0}).values, ElementsAre(1, 2, 3, 4, 5, 6));
  put("x_test", npy("<f4", "(1, 2, 3)", numbers<float>({1, 2, 3, 4, 5, 6})));
  EXPECT_THAT(refusal(), HasSubstr("training sequences have 3 steps of 2 numbers and classes at "
                                   "the end, test sequences 2 steps of 3 numbers"));
  put("x_test", npy("<f4", "(1, 3, 2)", numbers<float>({1, 2, 3, 4, 5, 6})));
  put("y_test", npy("<f4", "(1, 1)", numbers<float>({1})));
  EXPECT_THAT(refusal(), HasSubstr("and 1 targets"));
}

TEST_F(NpyTask, TheTestSetAlone) {
  put("x_test", npy("<f4", "(1, 3, 2)", numbers<float>({1, 2, 3, 4, 5, 6})));
  put("y_test", npy("|u1", "(1,)", "\2"));
  std::filesystem::remove(folder_.path() + "/x_train.npy");
  EXPECT_THAT(io_message_of([&] { make(); }), HasSubstr("x_train.npy"));
  const auto task =
      make_task({.name = "npy", .data = folder_.path(), .only = std::optional(Split::test)});
  EXPECT_EQ(task->samples(Split::train), 0);
  EXPECT_EQ(task->samples(Split::test), 1);
  EXPECT_EQ(task->shape().outputs, 3);
}

TEST_F(NpyTask, InputsThatDoNotFit) {
  put("x_train", npy("<f4", "(2,)", "12345678"));
  EXPECT_THAT(refusal(), HasSubstr("x_train.npy is [2]; it must be [N,T] or [N,T,I]"));
  put("x_train", npy("<f4", "(2, 0, 3)", ""));
  EXPECT_THAT(refusal(), HasSubstr("none of them 0"));
  put("x_train", npy("<f4", "(2, 1)", numbers<float>({1, kNan})));
  EXPECT_THAT(refusal(), HasSubstr("x_train.npy: sample 1, step 0, channel 0 is nan; inputs must"));
  put("x_train", npy("<f8", "(2, 1)", numbers<double>({1e300, 0})));
  EXPECT_THAT(refusal(), HasSubstr("sample 0, step 0, channel 0 is 1e+300; inputs must be finite"));
}

TEST_F(NpyTask, AnswersThatDoNotFit) {
  put("y_train", npy("|u1", "(3,)", "\1\2\3"));
  EXPECT_THAT(refusal(), HasSubstr("y_train.npy is [3]; classes for x must be [2] or [2,3]"));
  put("y_train", npy("|i1", "(2,)", "\1\xfe"));
  EXPECT_THAT(refusal(), HasSubstr("class -2"));
  put("y_train", npy("|i1", "(2,)", "\xff\xff"));
  EXPECT_THAT(refusal(), HasSubstr("every class is -1"));
  put("y_train", npy("<i4", "(2,)", numbers<std::int32_t>({0, 65536})));
  EXPECT_THAT(refusal(), HasSubstr("class 65536; allowed are 0 to 65535"));
  put("y_train", npy("<f4", "(2,)", "12345678"));
  EXPECT_THAT(refusal(), HasSubstr("targets for x must be [2,O] or [2,3,O]"));
  put("y_train", npy("<f4", "(2, 4, 1)", std::string(32, '\0')));
  EXPECT_THAT(refusal(), HasSubstr("targets for x must be"));
  put("y_train", npy("<f4", "(2, 0)", ""));
  EXPECT_THAT(refusal(), HasSubstr("targets for x must be"));
  put("y_train", npy("<f8", "(2, 1)", numbers<double>({1e300, 0})));
  EXPECT_THAT(refusal(), HasSubstr("y_train.npy: sample 0, channel 0 is 1e+300; targets must be"));
}

TEST_F(NpyTask, WhatIsNotFiniteIsNamedByItsPlace) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  std::vector<float> x(12);
  for (const std::size_t i : {0U, 3U, 11U}) {
    for (const float bad : {kNan, inf, -inf}) {
      x[i] = bad;
      put("x_train", npy("<f4", "(2, 3, 2)", numbers<float>(x)));
      const std::string place = "sample " + std::to_string(i / 6) + ", step " +
                                std::to_string(i / 2 % 3) + ", channel " + std::to_string(i % 2);
      EXPECT_THAT(refusal(), HasSubstr("x_train.npy: " + place + " is "));
    }
    x[i] = 0;
  }
  put("x_train", npy("<f4", "(2, 3, 2)", numbers<float>(x)));
  put("y_train", npy("<f4", "(2, 3, 1)", numbers<float>({0, kNan, 0, 0, 0, -inf})));
  EXPECT_THAT(refusal(), HasSubstr("y_train.npy: sample 1, step 2, channel 0 is -inf; targets"));
}

TEST_F(NpyTask, PaddingNeedNotBeFinite) {
  put("x_train",
      npy("<f4", "(2, 3, 2)", numbers<float>({0, 1, 2, 3, kNan, kNan, 6, 7, 8, 9, 10, 11})));
  EXPECT_THAT(refusal(), HasSubstr("sample 0, step 2, channel 0 is nan"));
  put("lengths_train", npy("|u1", "(2,)", "\2\3"));
  const Batch batch = filled(*make(), Split::train, {0});
  EXPECT_THAT(batch.values, ElementsAre(0, 1, 2, 3, 0, 0));
}

TEST_F(NpyTask, LengthsThatDoNotFit) {
  put("lengths_train", npy("<f4", "(2,)", "12345678"));
  EXPECT_THAT(refusal(), HasSubstr("one whole number for each of 2 samples"));
  put("lengths_train", npy("|u1", "(3,)", "\1\1\1"));
  EXPECT_THAT(refusal(), HasSubstr("one whole number for each of 2 samples"));
  put("lengths_train", npy("|u1", "(2,)", std::string("\3\0", 2)));
  EXPECT_THAT(refusal(), HasSubstr("sample 1 has length 0; 1 to 3"));
  put("lengths_train", npy("|u1", "(2,)", "\4\1"));
  EXPECT_THAT(refusal(), HasSubstr("sample 0 has length 4"));
  put("lengths_train", npy("|u1", "(2,)", "\3\1"));
  EXPECT_THAT(refusal(4), HasSubstr("4 steps; 1 to 3"));
}

}  // namespace
}  // namespace ebb::test::npy_task_test
