// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/data/filled.h"
#include "tests/data/made_files.h"
#include "tests/temporary_folder.h"

namespace ebb::test::qtdb_task_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::size_t kSteps = 1301;

// Two records; nothing fires and no step has a label but where a test says so.
struct Records {
  std::vector<std::int16_t> x = std::vector<std::int16_t>(2 * kSteps * 4);
  std::vector<std::uint8_t> y = std::vector<std::uint8_t>(2 * kSteps * 6);

  static std::size_t at(std::size_t record, std::size_t t, std::size_t c) {
    return record + 2 * (t + kSteps * c);
  }
  std::string file() const {
    return mat_header() + mat_variable("x", {2, kSteps, 4}, 3, numbers(x)) +
           mat_variable("y", {2, kSteps, 6}, 2, numbers(y));
  }
};

class QtdbTask : public ::testing::Test {
 protected:
  QtdbTask() {
    put("QTDB_train.mat", Records().file());
    put("QTDB_test.mat", Records().file());
  }
  void put(const std::string& name, const std::string& content) {
    write_file(folder_.path() + "/" + name, content);
  }
  std::unique_ptr<Task> make(std::int64_t steps = 0) {
    return make_task({.name = "qtdb", .data = folder_.path(), .steps = steps});
  }
  TemporaryFolder folder_;
};

TEST_F(QtdbTask, SpikesClassesAndMask) {
  Records records;
  records.x[Records::at(1, 7, 0)] = 1;
  records.x[Records::at(1, 7, 3)] = 1;
  records.x[Records::at(1, kSteps - 1, 0)] = -1;
  records.y[Records::at(1, 9, 4)] = 1;
  records.y[Records::at(1, 10, 5)] = 1;
  records.y[Records::at(1, 12, 1)] = 1;
  put("QTDB_test.mat", records.file());
  const auto task = make();
  EXPECT_EQ(task->shape().steps, 1301);
  EXPECT_EQ(task->shape().inputs, 4);
  EXPECT_EQ(task->shape().outputs, 6);
  EXPECT_TRUE(task->shape().spikes && task->shape().classes && task->shape().every_step);
  EXPECT_EQ(task->samples(Split::test), 2);
  const Batch batch = filled(*task, Split::test, {0, 1});
  EXPECT_THAT(firing(batch, task->shape(), 2, 7, 1), ElementsAre(0, 3));
  EXPECT_THAT(firing(batch, task->shape(), 2, 7, 0), IsEmpty());
  EXPECT_THAT(firing(batch, task->shape(), 2, 1300, 1), IsEmpty());
  for (std::size_t t = 0; t < 10; ++t) EXPECT_EQ(batch.classes[t * 2 + 1], -1);
  EXPECT_EQ(batch.classes[10 * 2 + 1], 5);
  EXPECT_EQ(batch.classes[11 * 2 + 1], 0);  // no label
  EXPECT_EQ(batch.classes[12 * 2 + 1], 1);
  EXPECT_EQ(batch.classes[10 * 2], 0);
}

TEST_F(QtdbTask, FewerSteps) {
  const auto task = make(11);
  EXPECT_EQ(task->shape().steps, 11);
  EXPECT_EQ(filled(*task, Split::train, {1}).classes.size(), 11U);
  EXPECT_THAT(message_of([&] { make(10); }), HasSubstr("11 to 1301"));
  EXPECT_THAT(message_of([&] { make(1302); }), HasSubstr("11 to 1301"));
}

TEST_F(QtdbTask, FilesThatDoNotFit) {
  Records records;
  records.x[5] = 2;
  put("QTDB_test.mat", records.file());
  EXPECT_THAT(message_of([&] { make(); }),
              HasSubstr("QTDB_test.mat: x has a 2 at sample 1, step 2, channel 0; it must be"));
  put("QTDB_test.mat",
      mat_header() + mat_variable("x", {2, kSteps, 3}, 2, std::string(2 * kSteps * 3, '\0')));
  EXPECT_THAT(message_of([&] { make(); }),
              HasSubstr("variable x is [2,1301,3]; it must be [N,1301,4]"));
  put("QTDB_test.mat", mat_header() +
                           mat_variable("x", {2, kSteps, 4}, 2, std::string(2 * kSteps * 4, '\0')) +
                           mat_variable("y", {1, kSteps, 6}, 2, std::string(kSteps * 6, '\0')));
  EXPECT_THAT(message_of([&] { make(); }), HasSubstr("x has 2 records, y has 1"));
  std::vector<float> y(2 * kSteps * 6);
  y[Records::at(1, 12, 3)] = std::numeric_limits<float>::quiet_NaN();
  put("QTDB_test.mat", mat_header() +
                           mat_variable("x", {2, kSteps, 4}, 2, std::string(2 * kSteps * 4, '\0')) +
                           mat_variable("y", {2, kSteps, 6}, 7, numbers(y), 7));
  EXPECT_THAT(message_of([&] { make(); }),
              HasSubstr("y has a nan at sample 1, step 12, channel 3; it must be finite"));
}

}  // namespace
}  // namespace ebb::test::qtdb_task_test
