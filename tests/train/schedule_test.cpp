// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/message_of.h"

namespace ebb::test::schedule_test {
namespace {

using ::testing::HasSubstr;

double at(const char* words, std::int64_t iteration, std::int64_t iterations) {
  return parse_schedule(words).at(iteration, iterations);
}

TEST(Schedule, Shapes) {
  for (const std::int64_t i : {0, 1, 50, 99, 1000}) EXPECT_EQ(at("constant", i, 100), 1);

  EXPECT_EQ(at("step:10,0.5", 0, 100), 1);
  EXPECT_EQ(at("step:10,0.5", 9, 100), 1);
  EXPECT_EQ(at("step:10,0.5", 10, 100), 0.5);
  EXPECT_EQ(at("step:10,0.5", 39, 100), 0.125);

  EXPECT_EQ(at("linear", 0, 100), 1);
  EXPECT_EQ(at("linear", 25, 100), 0.75);
  EXPECT_NEAR(at("linear", 99, 100), 0.01, 1e-15);
  EXPECT_EQ(at("linear", 100, 100), 0);
  EXPECT_EQ(at("linear", 500, 100), 0);

  EXPECT_EQ(at("cosine", 0, 100), 1);
  EXPECT_NEAR(at("cosine", 50, 100), 0.5, 1e-15);
  EXPECT_NEAR(at("cosine", 25, 100), 0.5 + std::sqrt(0.125), 1e-15);
  EXPECT_GT(at("cosine", 99, 100), 0);
  EXPECT_NEAR(at("cosine", 100, 100), 0, 1e-15);
}

TEST(Schedule, WarmUpComesFirst) {
  for (const char* words :
       {"constant,warmup=4", "cosine,warmup=4", "linear,warmup=4", "step:1,0.5,warmup=4"}) {
    for (const std::int64_t i : {0, 1, 2, 3, 4}) {
      EXPECT_DOUBLE_EQ(at(words, i, 24), 0.2 * static_cast<double>(i + 1)) << words << " at " << i;
    }
  }
  EXPECT_EQ(at("linear,warmup=4", 14, 24), 0.5);
  EXPECT_EQ(at("step:10,0.5,warmup=4", 13, 24), 1);
  EXPECT_EQ(at("step:10,0.5,warmup=4", 14, 24), 0.5);
  // A short trial of a long recipe.
  EXPECT_DOUBLE_EQ(at("cosine,warmup=99", 9, 10), 0.1);
  EXPECT_EQ(at("cosine,warmup=10", 10, 10), 0);
}

TEST(Schedule, TextAndBack) {
  for (const char* words : {"constant", "cosine", "linear", "step:1000,0.5", "cosine,warmup=100",
                            "step:7,0.1,warmup=3", "step:9223372036854775807,1e-300"}) {
    EXPECT_EQ(to_text(parse_schedule(words)), words);
  }
  EXPECT_EQ(to_text(parse_schedule("linear,warmup=0")), "linear");
}

TEST(Schedule, WhatIsWrongIsSaid) {
  const auto message = [](const char* words) {
    return message_of([words] { parse_schedule(words); });
  };
  EXPECT_THAT(message(""), HasSubstr("there are constant, step:ITERATIONS,FACTOR, cosine"));
  EXPECT_THAT(message("sine"), HasSubstr("'sine' does not belong"));
  EXPECT_THAT(message("cosine,"), HasSubstr("'' does not belong"));
  EXPECT_THAT(message("cosine,warmup=5,warmup=6"), HasSubstr("'warmup=6' does not belong"));
  EXPECT_THAT(message("warmup=5"), HasSubstr("'warmup=5' does not belong"));
  EXPECT_THAT(message("cosine,warmup=-1"), HasSubstr("the warm-up is '-1'; it must be a whole"));
  EXPECT_THAT(message("cosine,warmup=1.5"), HasSubstr("'1.5'"));
  EXPECT_THAT(message("step:0,0.5"), HasSubstr("the number of iterations is '0'"));
  EXPECT_THAT(message("step:10"), HasSubstr("the factor is ''; it must be a number from 0 to 1"));
  EXPECT_THAT(message("step:10,2"), HasSubstr("the factor is '2'"));
  EXPECT_THAT(message("step:10,nan"), HasSubstr("the factor is 'nan'"));
  EXPECT_THAT(message_of([] { Schedule().at(-1, 10); }), HasSubstr("iteration -1"));
}

}  // namespace
}  // namespace ebb::test::schedule_test
