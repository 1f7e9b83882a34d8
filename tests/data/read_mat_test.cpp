// SPDX-License-Identifier: Apache-2.0
#include "ebb/data/read_mat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/made_files.h"

namespace ebb::test::read_mat_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

NumberArray read(const std::string& bytes, const std::string& variable = "x") {
  return read_mat(bytes_of(bytes), "f.mat", variable);
}
std::string refusal(const std::string& bytes) {
  return message_of([&] { read(bytes); });
}
std::vector<double> values(const NumberArray& array) {
  std::vector<double> all;
  with_numbers(array, [&](auto each) {
    for (std::size_t i = 0; i < array.data.size() / bytes_of(array.type); ++i) {
      all.push_back(static_cast<double>(each[i]));
    }
  });
  return all;
}

const std::string kShorts = numbers<std::int16_t>({0, 1, -1, 300, 5, 6});

TEST(ReadMat, TheStoredTypeCounts) {
  const NumberArray array = read(mat_header() + mat_variable("x", {2, 3}, 3, kShorts));
  EXPECT_THAT(array.shape, ElementsAre(2, 3));
  EXPECT_EQ(array.type, NumberType::i16);
  EXPECT_THAT(values(array), ElementsAre(0, 1, -1, 300, 5, 6));
}

template <class T>
void expect_type(std::uint32_t type, NumberType expected) {
  const NumberArray array =
      read(mat_header() + mat_variable("x", {1, 3}, type, numbers<T>({T{0}, T{1}, T{100}})));
  EXPECT_EQ(array.type, expected);
  EXPECT_THAT(values(array), ElementsAre(0, 1, 100)) << type;
}

TEST(ReadMat, EveryType) {
  expect_type<std::int8_t>(1, NumberType::i8);
  expect_type<std::uint8_t>(2, NumberType::u8);
  expect_type<std::int16_t>(3, NumberType::i16);
  expect_type<std::uint16_t>(4, NumberType::u16);
  expect_type<std::int32_t>(5, NumberType::i32);
  expect_type<std::uint32_t>(6, NumberType::u32);
  expect_type<float>(7, NumberType::f32);
  expect_type<double>(9, NumberType::f64);
  expect_type<std::int64_t>(12, NumberType::i64);
  expect_type<std::uint64_t>(13, NumberType::u64);
}

TEST(ReadMat, ShortElements) {
  const std::string name = little(1, 2) + little(1, 2) + std::string("x\0\0\0", 4);
  const std::string content = little(2, 2) + little(3, 2) + std::string("\7\x8\x9\0", 4);
  const std::string variable =
      mat_element(14, mat_element(6, little(6, 8)) + mat_element(5, numbers<std::int32_t>({3, 1})) +
                          name + content);
  EXPECT_THAT(values(read(mat_header() + variable)), ElementsAre(7, 8, 9));
}

TEST(ReadMat, TheVariableAmongOthers) {
  const std::string cell =
      mat_element(14, mat_element(6, little(1, 8)) + mat_element(5, numbers<std::int32_t>({1, 1})) +
                          mat_element(1, "c") + mat_element(14, ""));
  const std::string file = mat_header() + cell + mat_element(14, "") +
                           mat_variable("xy", {1, 1}, 2, "a") + mat_variable("x", {1, 1}, 2, "b");
  EXPECT_THAT(values(read(file)), ElementsAre('b'));
  EXPECT_THAT(values(read(file, "xy")), ElementsAre('a'));
  EXPECT_EQ(message_of([&] { read(file, "z"); }), "f.mat: there is no variable z");
  EXPECT_THAT(message_of([&] { read(file, "c"); }), HasSubstr("variable c has class 1"));
}

TEST(ReadMat, Compressed) {
  if (!can_inflate()) GTEST_SKIP() << "this build has no zlib";
  const auto compressed = [](const std::string& variable) {
    const std::string stream = zlib_stream(variable);
    return little(15, 4) + little(stream.size(), 4) + stream;
  };
  const std::string file = mat_header() + compressed(mat_variable("t", {1, 3}, 2, "abc")) +
                           compressed(mat_variable("x", {2, 3}, 3, kShorts));
  EXPECT_THAT(values(read(file)), ElementsAre(0, 1, -1, 300, 5, 6));
  EXPECT_THAT(values(read(file, "t")), ElementsAre('a', 'b', 'c'));
  EXPECT_THAT(refusal(mat_header() + compressed(mat_element(9, std::string(8, 'a')))),
              HasSubstr("there is no variable x"));
  std::string damaged = file;
  damaged[mat_header().size() + 20] ^= 1;
  EXPECT_THAT(refusal(damaged), HasSubstr("f.mat: "));
}

TEST(ReadMat, OtherFiles) {
  std::string file = mat_header();
  file[126] = 'M';
  file[127] = 'I';
  EXPECT_THAT(refusal(file), HasSubstr("big-endian"));
  file[126] = 'X';
  EXPECT_THAT(refusal(file), HasSubstr("not a MATLAB file of version 5"));
  file = mat_header();
  file[125] = 2;
  EXPECT_THAT(refusal(file), HasSubstr("7.3"));
  file[125] = 3;
  EXPECT_THAT(refusal(file), HasSubstr("version 768 instead of 256"));
  EXPECT_THAT(refusal("\x89HDF\r\n\x1a\n"), HasSubstr("HDF5"));
  EXPECT_THAT(refusal(std::string(100, ' ')), HasSubstr("ends too early"));
}

TEST(ReadMat, OtherVariables) {
  EXPECT_THAT(refusal(mat_header() + mat_variable("x", {1, 1}, 4, "ab", 4)), HasSubstr("class 4"));
  EXPECT_THAT(refusal(mat_header() + mat_variable("x", {1, 1}, 2, "a", 6 | 0x800)),
              HasSubstr("variable x is complex"));
  EXPECT_THAT(refusal(mat_header() + mat_variable("x", {1, 1}, 16, "a")),
              HasSubstr("its numbers have type 16"));
  EXPECT_THAT(refusal(mat_header() + mat_element(14, mat_element(5, little(6, 8)))),
              HasSubstr("flags of a variable have type 5 instead of 6"));
}

TEST(ReadMat, SizesThatDoNotFit) {
  const auto with = [](const std::vector<std::int32_t>& shape) {
    return refusal(mat_header() + mat_variable("x", shape, 3, kShorts));
  };
  EXPECT_EQ(with({2, 4}), "f.mat: variable x of [2,4] numbers of 2 bytes has 12 bytes");
  EXPECT_THAT(with({5, 1}), HasSubstr("has 12 bytes"));
  EXPECT_THAT(with({-2, -3}), HasSubstr("has 12 bytes"));
  EXPECT_THAT(with({0, 3}), HasSubstr("has 12 bytes"));
  EXPECT_THAT(with({0x40000000, 0x40000000, 0x40000000}), HasSubstr("has 12 bytes"));
  EXPECT_THAT(refusal(mat_header() + mat_variable("x", {1, 1}, 3, "abc")), HasSubstr("3 bytes"));
  EXPECT_THAT(refusal(mat_header() + little(14, 4) + little(0xffffffff, 4)),
              HasSubstr("4294967295 bytes are needed"));
  EXPECT_THAT(refusal(mat_header() + little(14, 2) + little(5, 2) + "abcd"),
              HasSubstr("a short element says 5 bytes"));
}

TEST(ReadMat, EveryBeginningIsRefused) {
  const std::string file = mat_header() + mat_variable("x", {2, 3}, 3, kShorts);
  for (std::size_t size = 0; size < file.size(); ++size) {
    EXPECT_NE(refusal(file.substr(0, size)), "no error") << size;
  }
}

}  // namespace
}  // namespace ebb::test::read_mat_test
