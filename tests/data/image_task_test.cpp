// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/data/filled.h"
#include "tests/data/made_files.h"
#include "tests/temporary_folder.h"

namespace ebb::test::image_task_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Pixel p of picture n has the grey level (7 n + p) % 256.
class ImageTask : public ::testing::Test {
 protected:
  ImageTask() {
    put("train-images-idx3-ubyte", idx({3, 28, 28}, pictures(3)));
    put("train-labels-idx1-ubyte", idx({3}, std::string("\5\0\x9", 3)));
    put("t10k-images-idx3-ubyte", idx({2, 28, 28}, pictures(2)));
    put("t10k-labels-idx1-ubyte", idx({2}, "\1\2"));
  }
  void put(const std::string& name, const std::string& content) {
    write_file(folder_.path() + "/" + name, content);
  }
  std::unique_ptr<Task> make(const std::string& name, std::int64_t steps = 0) {
    return make_task({.name = name, .data = folder_.path(), .steps = steps});
  }
  static std::string pictures(std::size_t count) {
    std::string pixels(count * 784, '\0');
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      pixels[i] = static_cast<char>((7 * (i / 784) + i % 784) % 256);
    }
    return pixels;
  }
  static float grey(std::int64_t n, std::int64_t p, float mean, float deviation) {
    return (static_cast<float>((7 * n + p) % 256) / 255 - mean) / deviation;
  }

  TemporaryFolder folder_;
};

TEST_F(ImageTask, NamesOfClasses) {
  EXPECT_EQ(make("mnist")->class_names().at(7), "7");
  EXPECT_EQ(make("permuted-fashion-mnist")->class_names().size(), 10U);
  EXPECT_EQ(make("fashion-mnist")->class_names().back(), "Ankle boot");
}

TEST_F(ImageTask, PixelByPixel) {
  const auto task = make("mnist");
  EXPECT_EQ(task->shape().steps, 784);
  EXPECT_EQ(task->shape().inputs, 1);
  EXPECT_EQ(task->shape().outputs, 10);
  EXPECT_TRUE(task->shape().classes && !task->shape().spikes && !task->shape().every_step);
  EXPECT_EQ(task->samples(Split::train), 3);
  EXPECT_EQ(task->samples(Split::test), 2);
  const Batch batch = filled(*task, Split::train, {2, 0});
  EXPECT_THAT(batch.classes, ElementsAre(9, 5));
  ASSERT_EQ(batch.values.size(), 784U * 2);
  for (std::int64_t t = 0; t < 784; ++t) {
    const auto at = static_cast<std::size_t>(t * 2);
    EXPECT_FLOAT_EQ(batch.values[at], grey(2, t, .1307F, .3081F));
    EXPECT_FLOAT_EQ(batch.values[at + 1], grey(0, t, .1307F, .3081F));
  }
}

TEST_F(ImageTask, SeveralPixelsAStep) {
  const Batch pixels = filled(*make("fashion-mnist"), Split::test, {1});
  EXPECT_FLOAT_EQ(pixels.values[5], grey(1, 5, .2860F, .3530F));
  const auto rows = make("fashion-mnist", 28);
  EXPECT_EQ(rows->shape().steps, 28);
  EXPECT_EQ(rows->shape().inputs, 28);
  EXPECT_EQ(filled(*rows, Split::test, {1}).values, pixels.values);
  const Batch both = filled(*rows, Split::test, {0, 1});
  EXPECT_TRUE(std::equal(pixels.values.begin() + 28, pixels.values.begin() + 56,
                         both.values.begin() + 3 * 28));
  EXPECT_THAT(message_of([&] { make("mnist", 100); }), HasSubstr("100 steps; 784 pixels"));
  EXPECT_THAT(message_of([&] { make("mnist", 785); }), HasSubstr("1 to 784"));
}

// The order is part of what is published: it must never change.
TEST_F(ImageTask, OneFixedOrder) {
  const Batch plain = filled(*make("mnist"), Split::train, {0});
  const Batch permuted = filled(*make("permuted-mnist"), Split::train, {0});
  const auto level = [](float value) {
    return static_cast<int>(std::lround((value * .3081F + .1307F) * 255));
  };
  EXPECT_THAT((std::vector{level(permuted.values[0]), level(permuted.values[1]),
                           level(permuted.values[2]), level(permuted.values[783])}),
              ElementsAre(373 % 256, 131, 338 % 256, 470 % 256));
  EXPECT_NE(plain.values, permuted.values);
  EXPECT_TRUE(std::ranges::is_permutation(plain.values, permuted.values));
  const auto other = make_task({.name = "permuted-mnist", .data = folder_.path(), .seed = 99});
  EXPECT_EQ(filled(*other, Split::train, {0}).values, permuted.values);
}

TEST_F(ImageTask, Gzip) {
  if (!can_inflate()) GTEST_SKIP() << "this build has no zlib";
  std::filesystem::remove(folder_.path() + "/train-images-idx3-ubyte");
  put("train-images-idx3-ubyte.gz", gzip_member(idx({3, 28, 28}, pictures(3))));
  EXPECT_EQ(make("mnist")->samples(Split::train), 3);
}

TEST_F(ImageTask, FilesThatDoNotFit) {
  put("t10k-labels-idx1-ubyte", idx({3}, "\1\2\3"));
  EXPECT_THAT(message_of([&] { make("mnist"); }),
              HasSubstr("t10k-labels-idx1-ubyte: one class for each of the 2 pictures"));
  put("t10k-labels-idx1-ubyte", idx({2}, "\1\xa"));
  EXPECT_THAT(message_of([&] { make("mnist"); }), HasSubstr("class 10; 0 to 9"));
  put("t10k-images-idx3-ubyte", idx({2, 14, 56}, pictures(2)));
  EXPECT_THAT(message_of([&] { make("mnist"); }),
              HasSubstr("t10k-images-idx3-ubyte: pictures of 28x28"));
  put("t10k-images-idx3-ubyte", idx({0, 28, 28}, ""));
  EXPECT_THAT(message_of([&] { make("mnist"); }), HasSubstr("pictures of 28x28"));
}

}  // namespace
}  // namespace ebb::test::image_task_test
