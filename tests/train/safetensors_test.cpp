// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "tests/message_of.h"

namespace ebb::test::safetensors_test {
namespace {

using ::testing::HasSubstr;

std::string written(const std::vector<TensorView>& tensors, const TensorNotes& notes = {}) {
  std::string file;
  write_safetensors(tensors, notes, [&file](std::span<const std::byte> bytes) {
    file.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  return file;
}

std::span<const std::byte> bytes_of(const std::string& file) {
  return std::as_bytes(std::span(file));
}

// A file by hand: the header as it is, without padding.
std::string file_of(const std::string& header, const std::string& data = "") {
  const std::uint64_t length = header.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file + header + data;
}

std::string refusal(const std::string& file) {
  return message_of([&] { read_safetensors(bytes_of(file), "file.safetensors"); });
}

// The format's own description, byte for byte.
TEST(Safetensors, WritesTheFormat) {
  const std::vector<float> a{1, 2};
  const std::vector<std::uint8_t> b{7};
  const std::string file =
      written({view_tensor<std::uint8_t>("b", {}, b), view_tensor<float>("a", {2, 1}, a)},
              {{"by", "ebb \"1\""}});
  const std::string header =
      R"({"__metadata__":{"by":"ebb \"1\""},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"U8","shape":[],"data_offsets":[8,9]}})";
  std::string padded = header;
  while (padded.size() % 8 != 0) padded += ' ';
  std::string data(8, '\0');
  std::memcpy(data.data(), a.data(), 8);
  EXPECT_EQ(file, file_of(padded, data + '\7'));
}

TEST(Safetensors, GivesBackEveryType) {
  const std::vector<float> f32{1.5F, -0.0F};
  const std::vector<double> f64{3.25};
  const std::vector<std::int64_t> i64{-1, 2, 3};
  const std::vector<std::int32_t> i32{-7};
  const std::vector<std::uint8_t> u8{1, 2, 255};
  const std::string file = written(
      {view_tensor<std::uint8_t>("u8", {3}, u8), view_tensor<float>("f32", {1, 2}, f32),
       view_tensor<std::int32_t>("i32", {1, 1, 1}, i32), view_tensor<double>("f64", {}, f64),
       view_tensor<std::int64_t>("i64", {3}, i64), view_tensor<float>("none", {4, 0}, {})},
      {{"note", "text"}});
  const Safetensors read = read_safetensors(bytes_of(file), "file");
  EXPECT_EQ(read.notes, (TensorNotes{{"note", "text"}}));
  ASSERT_EQ(read.tensors.size(), 6U);

  const auto expect = [&]<class Number>(const char* name, const std::vector<Number>& numbers,
                                        const std::vector<std::int64_t>& shape) {
    const TensorView& tensor = find_tensor(read.tensors, name);
    EXPECT_EQ(tensor.shape, shape) << name;
    std::vector<Number> got(numbers.size());
    copy_tensor(tensor, std::span(got));
    EXPECT_EQ(got, numbers) << name;
    EXPECT_EQ((tensor.bytes.data() - bytes_of(file).data()) % sizeof(Number), 0U) << name;
  };
  expect("f32", f32, {1, 2});
  expect("f64", f64, {});
  expect("i64", i64, {3});
  expect("i32", i32, {1, 1, 1});
  expect("u8", u8, {3});
  expect("none", std::vector<float>{}, {4, 0});
}

TEST(Safetensors, TheOrderOfTheTensorsDoesNotMatter) {
  const std::vector<float> a{1}, b{2};
  const std::vector<double> c{3};
  const std::vector<TensorView> tensors{view_tensor<float>("a", {1}, a),
                                        view_tensor<float>("b", {1}, b),
                                        view_tensor<double>("c", {1}, c)};
  EXPECT_EQ(written(tensors), written({tensors[2], tensors[1], tensors[0]}));
}

TEST(Safetensors, WhatIsWrongIsSaid) {
  const std::string a = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  EXPECT_EQ(refusal(file_of(a + "}", "1234")), "no error");
  EXPECT_EQ(refusal(file_of("{}")), "no error");
  EXPECT_THAT(refusal("1234567"), HasSubstr("7 bytes are no safetensors file"));
  EXPECT_THAT(refusal(file_of(a + "}", "12345")), HasSubstr("4 bytes of data, the file 5"));
  EXPECT_THAT(refusal(file_of(a + "}", "123")), HasSubstr("the file has 3"));
  EXPECT_THAT(refusal(file_of("[]")), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal(file_of("")), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal(file_of(std::string("{}\0}", 4))), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal(file_of("{")), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal(file_of("{} x")), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal(file_of("{\"\xff\":1}")), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal(file_of(R"({"a":1})")), HasSubstr("where it does not belong"));
  const std::string again = a.substr(1);
  EXPECT_THAT(refusal(file_of(a + "," + again + "}", "1234")), HasSubstr("names \"a\" twice"));
  EXPECT_THAT(refusal(file_of(R"({"__metadata__":{"k":"1","k":"2"}})")), HasSubstr("twice"));
  EXPECT_THAT(refusal(file_of(R"({"__metadata__":{"k":1}})")), HasSubstr("does not belong"));
}

TEST(Safetensors, TensorsThatAreWrong) {
  const auto with = [](const std::string& fields, const std::string& data = "1234") {
    return refusal(file_of(R"({"a":{)" + fields + "}}", data));
  };
  EXPECT_EQ(with(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), "no error");
  EXPECT_THAT(with(R"("dtype":"BF16","shape":[2],"data_offsets":[0,4])"), HasSubstr("\"BF16\""));
  EXPECT_THAT(with(R"("dtype":"F32","shape":[1])"), HasSubstr("lacks"));
  EXPECT_THAT(with(R"("dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4])"),
              HasSubstr("once each"));
  EXPECT_THAT(with(R"("dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1)"),
              HasSubstr("the key \"x\""));
  EXPECT_THAT(with(R"("dtype":"F32","shape":[1],"data_offsets":[0])"), HasSubstr("fewer"));
  EXPECT_THAT(with(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,8])"), HasSubstr("third"));
  EXPECT_THAT(with(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), HasSubstr("-1"));
  EXPECT_THAT(with(R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])"), HasSubstr("1.0"));
  EXPECT_THAT(with(R"("dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,4])"),
              HasSubstr("9223372036854775808"));
  EXPECT_THAT(with(R"("dtype":"F32","shape":[[1]],"data_offsets":[0,4])"), HasSubstr("an array"));
  EXPECT_THAT(with(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), HasSubstr("it has 4"));
  // 2^62 floats are 2^64 bytes, which a careless product takes for 0.
  EXPECT_THAT(with(R"("dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0])", ""),
              HasSubstr("it has 0 bytes"));
  EXPECT_THAT(with(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), HasSubstr("begin at"));
  EXPECT_THAT(with(R"("dtype":"F32","shape":[0],"data_offsets":[4,4])"), HasSubstr("begin at"));
}

TEST(Safetensors, HolesAndOverlaps) {
  const auto two = [](int begin) {
    const std::string from = std::to_string(begin), to = std::to_string(begin + 4);
    return refusal(file_of(R"({"b":{"dtype":"I32","shape":[1],"data_offsets":[)" + from + "," + to +
                               R"(]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                           std::string(static_cast<std::size_t>(begin) + 4, 'x')));
  };
  EXPECT_EQ(two(4), "no error");
  EXPECT_THAT(two(5), HasSubstr("begin at byte 5, those before it end at 4"));
  EXPECT_THAT(two(3), HasSubstr("begin at byte 3, those before it end at 4"));
  EXPECT_THAT(two(0), HasSubstr("begin at byte 0, those before it end at 4"));
}

TEST(Safetensors, TheHeaderHasALimit) {
  std::string file(8, '\0');
  const std::uint64_t length = 100'000'001;
  std::memcpy(file.data(), &length, sizeof length);
  file.append(static_cast<std::size_t>(length), ' ');
  EXPECT_THAT(refusal(file), HasSubstr("100000001 bytes; at most 100000000"));
  std::fill_n(file.begin(), 8, '\xff');
  EXPECT_THAT(refusal(file), HasSubstr("at most"));
}

TEST(Safetensors, WhatCannotBeWritten) {
  const std::vector<float> one{1};
  const auto message = [](const std::vector<TensorView>& tensors) {
    return message_of([&] { written(tensors); });
  };
  const TensorView good = view_tensor<float>("a", {1}, one);
  EXPECT_EQ(message({good}), "no error");
  EXPECT_THAT(message({good, good}), HasSubstr("two tensors are named \"a\""));
  EXPECT_THAT(message({view_tensor<float>("a", {2}, one)}), HasSubstr("has 4 bytes"));
  EXPECT_THAT(message({view_tensor<float>("a", {-1}, one)}), HasSubstr("has 4 bytes"));
  EXPECT_THAT(message({view_tensor<float>("\xff", {1}, one)}), HasSubstr("not UTF-8"));
  EXPECT_THAT(message({view_tensor<float>("__metadata__", {1}, one)}), HasSubstr("named"));
}

TEST(Safetensors, CopiesOnlyWhatFits) {
  const std::vector<float> two{1, 2};
  const std::vector<TensorView> tensors{view_tensor<float>("a", {2}, two)};
  std::vector<float> one(1);
  std::vector<double> doubles(1);
  EXPECT_THAT(message_of([&] { copy_tensor(tensors[0], std::span(one)); }),
              HasSubstr("2 numbers of type F32; it must have 1 of type F32"));
  EXPECT_THAT(message_of([&] { copy_tensor(tensors[0], std::span(doubles)); }),
              HasSubstr("of type F64"));
  EXPECT_THAT(message_of([&] { find_tensor(tensors, "b"); }), HasSubstr("no tensor \"b\""));
}

}  // namespace
}  // namespace ebb::test::safetensors_test
