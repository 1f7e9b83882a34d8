// SPDX-License-Identifier: Apache-2.0
#include "ebb/data/files_read.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "ebb/data/task.h"
#include "tests/data/made_files.h"
#include "tests/temporary_folder.h"

namespace ebb::test::files_read_test {
namespace {

const std::string kText = "the quick brown fox jumps over the lazy dog, again and again and again";

DataFingerprint of_text(const std::filesystem::path& data) {
  return make_task({.name = "text", .data = data, .steps = 3})->data();
}

TEST(FilesRead, ATextIsItsContent) {
  const TemporaryFolder folder, other;
  const std::filesystem::path one = folder.path() + "/one", two = other.path() + "/two";
  write_file(one, kText);
  write_file(two, kText);
  const DataFingerprint before = of_text(one);
  EXPECT_EQ(before.files, 1);
  EXPECT_EQ(before.bytes, static_cast<Bytes>(kText.size()));
  EXPECT_EQ(of_text(two), before);
  for (std::size_t i = 0; i < kText.size(); ++i) {
    std::string changed = kText;
    changed[i] = changed[i] == 'x' ? 'y' : 'x';
    write_file(two, changed);
    EXPECT_NE(of_text(two), before) << i;
  }
}

TEST(FilesRead, TasksWithoutFilesHaveNone) {
  for (const char* const name : {"adding", "copy"}) {
    EXPECT_EQ(make_task({.name = name})->data(), DataFingerprint{}) << name;
  }
}

DataFingerprint of(const std::vector<std::pair<std::string, std::string>>& files) {
  const FilesRead read("folder");
  for (const auto& [name, content] : files) note_file("folder/" + name, bytes_of(content));
  return read.fingerprint();
}

TEST(FilesRead, NamesOrderAndBordersCount) {
  const DataFingerprint before = of({{"a", "12"}, {"b", "34"}});
  EXPECT_EQ(of({{"a", "12"}, {"b", "34"}}), before);
  EXPECT_NE(of({{"a", "12"}, {"c", "34"}}), before);
  EXPECT_NE(of({{"b", "34"}, {"a", "12"}}), before);
  EXPECT_NE(of({{"a", "123"}, {"b", "4"}}), before);
  EXPECT_NE(of({{"a", "1234"}, {"b", ""}}), before);
}

TEST(FilesRead, NobodyListensOutside) {
  const FilesRead outer("folder");
  of({{"a", "12"}});
  EXPECT_EQ(outer.fingerprint(), DataFingerprint{});
  note_file("folder/a", bytes_of("12"));
  EXPECT_EQ(outer.fingerprint(), of({{"a", "12"}}));
}

TEST(SlowFilesRead, OfLargeFilesPiecesCount) {
  std::vector<std::byte> content((std::size_t{260} << 20) + 5);
  const auto print = [&] {
    const FilesRead read("x");
    note_file("x", content);
    return read.fingerprint();
  };
  const DataFingerprint before = print();
  for (const std::size_t i : {std::size_t{0}, std::size_t{65'535}, content.size() / 4095 * 7,
                              content.size() - 65'536, content.size() - 1}) {
    content[i] = std::byte{1};
    EXPECT_NE(print(), before) << i;
    content[i] = std::byte{0};
  }
  EXPECT_EQ(print(), before);
  content.pop_back();
  EXPECT_NE(print(), before);
}

}  // namespace
}  // namespace ebb::test::files_read_test
