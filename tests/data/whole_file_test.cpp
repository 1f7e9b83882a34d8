// SPDX-License-Identifier: Apache-2.0
#include "ebb/data/whole_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/io_message.h"
#include "tests/data/made_files.h"
#include "tests/temporary_folder.h"

namespace ebb::test::whole_file_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(WholeFile, AllItsBytes) {
  const TemporaryFolder folder;
  const std::filesystem::path path = std::filesystem::path(folder.path()) / "f";
  const std::string content("a\0\xff\n", 4);
  write_file(path, content);
  const std::vector<std::byte> bytes = read_file(path, "", 4);
  EXPECT_TRUE(std::ranges::equal(bytes, bytes_of(content)));
  EXPECT_EQ(message_of([&] { read_file(path, "", 3); }),
            path.string() + ": 4 bytes; at most 3 are allowed");
  write_file(path, "");
  EXPECT_TRUE(read_file(path, "", 0).empty());
}

TEST(WholeFile, NoneOrNoFile) {
  const TemporaryFolder folder;
  EXPECT_EQ(io_message_of([&] { read_file(folder.path() + "/none", "made by hand"); }),
            "there is no file " + folder.path() + "/none; made by hand");
  EXPECT_THAT(io_message_of([&] { read_file(folder.path(), ""); }), HasSubstr("is not a file"));
  EXPECT_THAT(io_message_of([&] { read_file("/dev/zero", ""); }), HasSubstr("is not a file"));
}

TEST(WholeFile, FilesOfAFolder) {
  const TemporaryFolder folder;
  for (const char* const name : {"b.wav", "a.wav", "c.txt", "10.wav"}) {
    write_file(folder.path() + "/" + name, "");
  }
  const std::string in = folder.path() + "/";
  EXPECT_THAT(files_in(folder.path(), ".wav", ""),
              ElementsAre(in + "10.wav", in + "a.wav", in + "b.wav"));
  EXPECT_THAT(io_message_of([&] { files_in(in + "none", "", "made by hand"); }),
              HasSubstr("made by hand"));
}

}  // namespace
}  // namespace ebb::test::whole_file_test
