// SPDX-License-Identifier: Apache-2.0
#include "ebb/data/read_npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "tests/data/made_files.h"

namespace ebb::test::read_npy_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

NumberArray read(const std::string& bytes) {
  auto held = std::make_shared<const std::string>(bytes);
  NumberArray array = read_npy(bytes_of(*held), "f.npy");
  array.held = std::move(held);
  return array;
}
std::string refusal(const std::string& bytes) {
  return message_of([&] { read(bytes); });
}

template <class T>
void expect_type(const std::string& name, NumberType type) {
  const NumberArray array = read(npy(name, "(1, 3)", numbers<T>({T{0}, T{1}, T{100}})));
  EXPECT_EQ(array.type, type) << name;
  EXPECT_THAT(array.shape, ElementsAre(1, 3));
  with_numbers(array, [](auto each) {
    EXPECT_EQ(each[1], 1);
    EXPECT_EQ(each[2], 100);
  });
}

TEST(ReadNpy, EveryType) {
  expect_type<std::uint8_t>("|b1", NumberType::boolean);
  expect_type<std::int8_t>("|i1", NumberType::i8);
  expect_type<std::uint8_t>("|u1", NumberType::u8);
  expect_type<std::int16_t>("<i2", NumberType::i16);
  expect_type<std::uint16_t>("<u2", NumberType::u16);
  expect_type<std::int32_t>("<i4", NumberType::i32);
  expect_type<std::uint32_t>("<u4", NumberType::u32);
  expect_type<std::int64_t>("<i8", NumberType::i64);
  expect_type<float>("<f4", NumberType::f32);
  expect_type<double>("<f8", NumberType::f64);
}

TEST(ReadNpy, HalfPrecision) {
  const NumberArray array = read(npy("<f2", "(3,)", numbers<std::uint16_t>({0, 0x3c00, 0x7c00})));
  EXPECT_EQ(array.type, NumberType::f16);
  EXPECT_TRUE(is_real(array.type));
  with_numbers(array, [](auto each) {
    EXPECT_EQ(each[1], 1);
    EXPECT_TRUE(std::isinf(static_cast<float>(each[2])));
  });
}

TEST(ReadNpy, BigEndian) {
  const NumberArray array = read(npy(">i2", "(2,)", std::string("\1\2\0\3", 4)));
  with_numbers(array, [](auto each) {
    EXPECT_EQ(each[0], 0x102);
    EXPECT_EQ(each[1], 3);
  });
}

TEST(ReadNpy, OrdersOfPlaces) {
  const std::string shape = "'shape': (2, 3, 4)}", data(24, 'a');
  EXPECT_THAT(read(npy_with("{'descr': '|u1', 'fortran_order': False, " + shape, data)).strides,
              ElementsAre(12, 4, 1));
  EXPECT_THAT(read(npy_with("{'descr': '|u1', 'fortran_order': True, " + shape, data)).strides,
              ElementsAre(1, 2, 6));
}

TEST(ReadNpy, Shapes) {
  EXPECT_THAT(read(npy("|u1", "()", "a")).shape, IsEmpty());
  EXPECT_THAT(read(npy("|u1", "(2,)", "ab")).shape, ElementsAre(2));
  EXPECT_THAT(read(npy("|u1", "(0, 4611686018427387904, 8)", "")).shape,
              ElementsAre(0, 4611686018427387904, 8));
}

TEST(ReadNpy, EveryVersionAndAnyOrderOfKeys) {
  const std::string head = R"({"shape":(2,),"fortran_order":False,"descr":"|u1"})";
  EXPECT_THAT(read(npy_with(head, "ab")).shape, ElementsAre(2));
  for (const char version : {'\2', '\3'}) {
    const std::string file = std::string("\x93NUMPY") + version + '\0' + little(head.size(), 4);
    EXPECT_THAT(read(file + head + "ab").shape, ElementsAre(2));
  }
  for (const char version : {'\0', '\4'}) {
    EXPECT_THAT(refusal(std::string("\x93NUMPY") + version + '\0' + little(head.size(), 4) + head),
                HasSubstr("1 to 3 are read"));
  }
}

TEST(ReadNpy, OtherArrays) {
  EXPECT_THAT(refusal(npy("|O", "(1,)", "abcd")), HasSubstr("numbers of type '|O'; allowed are"));
  for (const std::string type : {"<c8", "<U3", "<u8", "", "<", "f"}) {
    EXPECT_THAT(refusal(npy(type, "(1,)", "abcdefgh")), HasSubstr("numbers of type '" + type));
  }
  EXPECT_THAT(
      refusal(npy_with("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}", "abcd")),
      HasSubstr("structured"));
}

TEST(ReadNpy, HeadersThatAreNone) {
  for (const std::string head :
       {"", "{", "{}", "{'descr'}", "{'descr': '|u1'}", "{'descr': '|u1', 'shape': ()}",
        "{'descr': '|u1', 'fortran_order': Maybe, 'shape': ()}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': ()} more",
        "{'descr': '|u1', 'fortran_order': False, 'shape': ()",
        "{'descr': '|u1' 'fortran_order': False, 'shape': ()}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (1 2)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '|u1, 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (), 'more': 1}"}) {
    EXPECT_EQ(refusal(npy_with(head, "a")), "f.npy: its header is not one that NumPy writes")
        << head;
  }
  std::string deep = "(";
  for (int i = 0; i < 65; ++i) deep += "1,";
  EXPECT_THAT(refusal(npy("|u1", deep + ")", "a")), HasSubstr("its header"));
}

TEST(ReadNpy, SizesThatDoNotFit) {
  EXPECT_EQ(refusal(npy("<f4", "(2,)", "1234567")),
            "f.npy: its header says [2] numbers of 4 bytes, 7 bytes follow it");
  EXPECT_THAT(refusal(npy("<f4", "(2,)", "123456789")), HasSubstr("9 bytes follow"));
  EXPECT_THAT(refusal(npy("<f8", "(2305843009213693952, 8)", "")), HasSubstr("0 bytes follow"));
  EXPECT_THAT(refusal("\x93NUMPX"), HasSubstr("not an .npy file"));
}

TEST(ReadNpy, EveryBeginningIsRefused) {
  const std::string bytes = npy("<f4", "(2,)", "12345678");
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_NE(refusal(bytes.substr(0, size)), "no error") << size;
  }
}

}  // namespace
}  // namespace ebb::test::read_npy_test
