// SPDX-License-Identifier: Apache-2.0
// The data sets themselves, where EBB_DATA names a folder with them: mnist, qtdb-ecg, text, and
// fsdd and nmnist-small as archives. Counts and shares were taken from the files by other programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <numeric>

#include "ebb/data/read_events.h"
#include "ebb/data/whole_file.h"
#include "tests/data/filled.h"
#include "tests/data/made_files.h"
#include "tests/temporary_folder.h"

namespace ebb::test::real_data_test {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

std::vector<std::int64_t> all_of(const Task& task, Split split) {
  std::vector<std::int64_t> samples(static_cast<std::size_t>(task.samples(split)));
  std::iota(samples.begin(), samples.end(), 0);
  return samples;
}

std::vector<int> class_counts(const Batch& batch, std::size_t classes) {
  std::vector<int> counts(classes);
  for (const std::int32_t label : batch.classes) ++counts.at(static_cast<std::size_t>(label));
  return counts;
}

class RealData : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* const path = std::getenv("EBB_DATA");
    if (path == nullptr) GTEST_SKIP() << "EBB_DATA names no folder with data sets";
    if (!can_inflate()) GTEST_SKIP() << "this build has no zlib";
    data_ = path;
  }
  // The folder of an archive, unpacked.
  std::filesystem::path unpacked(const std::string& archive) {
    const std::string command =
        "tar -xJf '" + (data_ / archive).string() + "' -C '" + folder_.path() + "'";
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    return folder_.path();
  }

  std::filesystem::path data_;
  TemporaryFolder folder_;
};

TEST_F(RealData, Mnist) {
  const auto task = make_task({.name = "mnist", .data = data_ / "mnist"});
  EXPECT_EQ(task->samples(Split::train), 60'000);
  EXPECT_EQ(task->samples(Split::test), 10'000);
  EXPECT_THAT(filled(*task, Split::train, {0, 1, 2, 3, 4}).classes, ElementsAre(5, 0, 4, 1, 9));
  EXPECT_THAT(filled(*task, Split::test, {0, 1, 2, 3, 4}).classes, ElementsAre(7, 2, 1, 0, 4));
  double sum = 0;
  double squares = 0;
  std::vector<std::int64_t> part(6000);
  for (std::int64_t first = 0; first < 60'000; first += 6000) {
    std::iota(part.begin(), part.end(), first);
    for (const float value : filled(*task, Split::train, part).values) {
      sum += value;
      squares += double{value} * value;
    }
  }
  EXPECT_NEAR(sum / (60'000 * 784), 0, .001);
  EXPECT_NEAR(squares / (60'000 * 784), 1, .001);
}

TEST(FashionMnist, TheDebianPackage) {
  if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist")) {
    GTEST_SKIP() << "the package dataset-fashion-mnist is not installed";
  }
  if (!can_inflate()) GTEST_SKIP() << "this build has no zlib";
  const auto task = make_task({.name = "fashion-mnist"});
  EXPECT_EQ(task->samples(Split::train), 60'000);
  EXPECT_EQ(task->samples(Split::test), 10'000);
  EXPECT_THAT(filled(*task, Split::train, {0, 1, 2, 3, 4}).classes, ElementsAre(9, 0, 0, 3, 0));
}

void expect_qtdb(const Task& task, Split split, const std::vector<double>& rates,
                 const std::vector<double>& shares) {
  const Batch batch = filled(task, split, all_of(task, split));
  const auto count = static_cast<double>(batch.spikes.size());
  for (std::size_t i = 0; i < 4; ++i) {
    const auto fires = [&](std::uint64_t word) { return (word >> i & 1) != 0; };
    EXPECT_NEAR(100 * static_cast<double>(std::ranges::count_if(batch.spikes, fires)) / count,
                rates[i], .05);
  }
  std::map<std::int32_t, double> share;
  const auto counted = static_cast<double>(task.samples(split) * (task.shape().steps - 10));
  for (const std::int32_t label : batch.classes) share[label] += 1 / counted;
  EXPECT_NEAR(share[-1] * counted, static_cast<double>(task.samples(split) * 10), 1e-3);
  // The shares are of all steps; those here leave ten of 1301 out.
  for (std::size_t c = 0; c < 6; ++c) {
    EXPECT_NEAR(share[static_cast<std::int32_t>(c)], shares[c], .008) << c;
  }
}

TEST_F(RealData, Qtdb) {
  const auto task = make_task({.name = "qtdb", .data = data_ / "qtdb-ecg"});
  EXPECT_EQ(task->samples(Split::train), 618);
  EXPECT_EQ(task->samples(Split::test), 141);
  expect_qtdb(*task, Split::train, {8.3, 6.8, 8.7, 7.3}, {.207, .062, .058, .044, .302, .327});
  expect_qtdb(*task, Split::test, {8.7, 6.9, 8.1, 7.8}, {.236, .055, .054, .049, .305, .301});
}

TEST_F(RealData, Text) {
  const auto task = make_task({.name = "text", .data = data_ / "text"});
  EXPECT_EQ(task->shape().outputs, 65);
  EXPECT_EQ(task->shape().steps, 256);
  EXPECT_EQ(task->samples(Split::train), (1'003'854 - 1) / 256);
  EXPECT_EQ(task->samples(Split::test), (111'540 - 1) / 256);
  // "First Citizen:": after newline, space, !$&',-.3:;? and A to Z come a to z.
  const std::vector<std::int32_t> classes = filled(*task, Split::train, {0}).classes;
  EXPECT_THAT(std::vector(classes.begin(), classes.begin() + 5), ElementsAre(47, 56, 57, 58, 1));
}

TEST_F(RealData, Nmnist) {
  const std::filesystem::path folder =
      unpacked("nmnist-small/nmnist-small.tar.xz") / "example" / "NMNISTsmall";
  std::size_t events = 0;
  for (const std::filesystem::path& path : files_in(folder, ".bs2", "")) {
    const std::vector<CameraEvent> found = read_events(read_file(path, ""), path.string(), 34, 34);
    events += found.size();
    if (path.filename() != "1.bs2") continue;
    ASSERT_EQ(found.size(), 4681U);
    EXPECT_THAT(std::vector(found.begin(), found.begin() + 3),
                ElementsAre(CameraEvent{893, 18, 16, 1}, CameraEvent{1060, 20, 17, 1},
                            CameraEvent{2443, 17, 9, 0}));
  }
  EXPECT_EQ(events, 4'518'827U);
  const auto task = make_task({.name = "nmnist", .data = folder, .steps = 10});
  EXPECT_EQ(task->samples(Split::train), 1000);
  EXPECT_EQ(task->samples(Split::test), 100);
  EXPECT_THAT(class_counts(filled(*task, Split::train, all_of(*task, Split::train)), 10),
              ElementsAre(97, 116, 99, 93, 105, 92, 94, 117, 87, 100));
  EXPECT_THAT(class_counts(filled(*task, Split::test, all_of(*task, Split::test)), 10),
              ElementsAre(8, 14, 8, 11, 14, 7, 10, 15, 2, 11));
}

TEST_F(RealData, Speech) {
  const std::filesystem::path folder = unpacked("fsdd/fsdd-recordings.tar.xz");
  const auto task = make_task({.name = "speech", .data = folder});
  EXPECT_EQ(task->samples(Split::train), 2700);
  EXPECT_EQ(task->samples(Split::test), 300);
  EXPECT_EQ(task->shape().steps, 18262);
  EXPECT_EQ(task->shape().outputs, 10);
  std::vector<std::int64_t> lengths;
  for (const Split split : {Split::train, Split::test}) {
    for (std::int64_t i = 0; i < task->samples(split); ++i) {
      const Batch batch = filled(*task, split, {i});
      lengths.push_back(batch.lengths.at(0));
      for (const float value : batch.values) ASSERT_LE(std::abs(value), 1);
    }
  }
  EXPECT_EQ(std::ranges::min(lengths), 1148);
  EXPECT_EQ(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}), 10'498'424);
  EXPECT_THAT(class_counts(filled(*make_task({.name = "speech", .data = folder, .steps = 1}),
                                  Split::train, all_of(*task, Split::train)),
                           10),
              ElementsAreArray(std::vector<int>(10, 270)));
}

}  // namespace
}  // namespace ebb::test::real_data_test
