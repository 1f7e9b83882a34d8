// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <fstream>
#include <string>

#include "ebb/core/error.h"
#include "ebb/store/file.h"
#include "tests/message_of.h"
#include "tests/temporary_folder.h"

namespace ebb::test::metrics_test {
namespace {

using ::testing::HasSubstr;

std::string content(const TemporaryFolder& folder) {
  std::ifstream file(folder.path() + "/metrics.jsonl");
  return {std::istreambuf_iterator<char>(file), {}};
}
void write(const TemporaryFolder& folder, const std::string& text) {
  std::ofstream(folder.path() + "/metrics.jsonl", std::ios::binary) << text;
}
std::string line(int iteration) {
  return "{\"iteration\":" + std::to_string(iteration) + ",\"loss\":0.5}\n";
}

TEST(Metrics, OneObjectALine) {
  const TemporaryFolder folder;
  MetricsFile file(folder.path(), -1);
  Metrics train;
  train.iteration = 10;
  train.loss = 0.5;
  train.metric = "accuracy";
  train.value = 0.25;
  train.lr = 0.001;
  train.gradient_norm = 2.5;
  train.seconds = 1.5;
  train.peak_bytes = 1024;
  file.append(train);
  Metrics test;
  test.iteration = 10;
  test.split = Split::test;
  test.loss = std::nan("");
  file.append(test);
  file.sync();
  EXPECT_EQ(content(folder),
            "{\"iteration\":10,\"split\":\"train\",\"loss\":0.5,\"accuracy\":0.25,\"lr\":0.001,"
            "\"gradient_norm\":2.5,\"seconds\":1.5,\"peak_bytes\":1024}\n"
            "{\"iteration\":10,\"split\":\"test\",\"loss\":null,\"seconds\":0.0}\n");
}

TEST(Metrics, ARunThatGoesOnCutsWhatItWillDoAgain) {
  const TemporaryFolder folder;
  write(folder, line(1) + line(2) + line(2) + line(3) + line(4));
  MetricsFile(folder.path(), 4);
  EXPECT_EQ(content(folder), line(1) + line(2) + line(2) + line(3) + line(4));
  MetricsFile(folder.path(), 2);
  EXPECT_EQ(content(folder), line(1) + line(2) + line(2));
  Metrics next;
  next.iteration = 3;
  MetricsFile(folder.path(), 2).append(next);
  EXPECT_THAT(content(folder), HasSubstr(line(2) + "{\"iteration\":3,"));
  MetricsFile(folder.path(), -1);
  EXPECT_EQ(content(folder), "");
}

TEST(Metrics, SecondsGoOnFromTheLastLineThatStays) {
  const TemporaryFolder folder;
  EXPECT_EQ(MetricsFile(folder.path(), 0).seconds(), 0);
  {
    MetricsFile file(folder.path(), 0);
    for (int i = 1; i <= 3; ++i) {
      Metrics metrics;
      metrics.iteration = i;
      metrics.seconds = 1.5 * i;
      file.append(metrics);
    }
  }
  EXPECT_EQ(MetricsFile(folder.path(), 2).seconds(), 3);
  write(folder, line(1));
  EXPECT_EQ(MetricsFile(folder.path(), 2).seconds(), 0);
}

TEST(Metrics, HalfALineGoes) {
  const TemporaryFolder folder;
  for (std::size_t left = 1; left < line(2).size(); ++left) {
    write(folder, line(1) + line(2).substr(0, left));
    MetricsFile(folder.path(), 5);
    ASSERT_EQ(content(folder), line(1)) << left;
  }
  // After a loss of power a file may have zeros where its end was to be.
  write(folder, line(1) + std::string(7, '\0') + "\n" + line(2));
  MetricsFile(folder.path(), 5);
  EXPECT_EQ(content(folder), line(1) + line(2));
  write(folder, "[1]\n{\"loss\":1}\n{\"iteration\":\"1\"}\n{\"iteration\":1.5}\n\n" + line(0));
  MetricsFile(folder.path(), 5);
  EXPECT_EQ(content(folder), line(0));
}

// A file that nothing is cut from is not written again.
TEST(Metrics, AWholeFileIsLeftAlone) {
  const TemporaryFolder folder;
  write(folder, line(1));
  const std::string path = folder.path() + "/metrics.jsonl";
  const auto before = std::filesystem::hard_link_count(path);
  std::filesystem::create_hard_link(path, path + ".same");
  MetricsFile(folder.path(), 1);
  EXPECT_EQ(std::filesystem::hard_link_count(path), before + 1);
}

ssize_t write_seven(int fd, const void* data, std::size_t bytes, off_t offset) {
  static bool first = true;
  if (std::exchange(first, false))
    return ::pwrite(fd, data, std::min<std::size_t>(bytes, 7), offset);
  errno = ENOSPC;
  return -1;
}

TEST(Metrics, AFullDiskLeavesWholeLines) {
  const TemporaryFolder folder;
  MetricsFile file(folder.path(), -1);
  Metrics metrics;
  file.append(metrics);
  const std::string before = content(folder);
  const FileCalls real = file_calls();
  file_calls().pwrite = write_seven;
  try {
    file.append(metrics);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_THAT(error.what(), HasSubstr("metrics.jsonl' cannot be written: No space left"));
  }
  file_calls() = real;
  EXPECT_EQ(content(folder), before);
  file.append(metrics);
  EXPECT_EQ(content(folder), before + before);
}

TEST(Metrics, WhatIsWrongIsSaid) {
  const TemporaryFolder folder;
  MetricsFile file(folder.path(), -1);
  Metrics metrics;
  metrics.metric = "loss";
  EXPECT_THAT(message_of([&] { file.append(metrics); }), HasSubstr("named 'loss'"));
  try {
    MetricsFile(folder.path() + "/nowhere", -1);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
  }
}

}  // namespace
}  // namespace ebb::test::metrics_test
