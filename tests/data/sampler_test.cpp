// SPDX-License-Identifier: Apache-2.0
#include "ebb/data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "ebb/data/task.h"
#include "tests/message_of.h"

namespace ebb::test::sampler_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Sampler, EndlessTasksBringNewOnes) {
  Sampler sampler(Task::kEndless, 1);
  EXPECT_THAT(sampler.batch(0, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(sampler.batch(7, 3), ElementsAre(21, 22, 23));
  EXPECT_THAT(sampler.batch(2, 2, 1, 3), ElementsAre(14, 15));
}

TEST(Sampler, EveryEpochWithoutReplacement) {
  Sampler sampler(100, 1);
  std::vector<std::int64_t> first;
  for (std::int64_t epoch = 0; epoch < 5; ++epoch) {
    std::set<std::int64_t> taken;
    std::vector<std::int64_t> order;
    for (std::int64_t i = 0; i < 14; ++i) {  // 14 batches of 7, two samples left out
      for (const std::int64_t sample : sampler.batch(epoch * 14 + i, 7)) {
        EXPECT_TRUE(sample >= 0 && sample < 100);
        taken.insert(sample);
        order.push_back(sample);
      }
    }
    EXPECT_EQ(taken.size(), 98U);
    EXPECT_NE(order, first);
    first = order;
  }
}

// All positions are alike to a sample: none is favoured by the shuffle.
TEST(Sampler, EveryPlaceAlike) {
  Sampler sampler(10, 3);
  std::vector<int> at(10);
  const int epochs = 10'000;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    const std::vector<std::int64_t> order = sampler.batch(epoch, 10);
    ++at.at(static_cast<std::size_t>(std::ranges::find(order, 4) - order.begin()));
  }
  for (const int count : at) EXPECT_NEAR(count, epochs / 10, 150);  // five deviations
}

TEST(Sampler, AFunctionOfTheIterationAlone) {
  Sampler one(50, 9);
  Sampler other(50, 9);
  Sampler seeded(50, 10);
  const auto far = other.batch(1000, 8);
  const auto near = other.batch(3, 8);
  EXPECT_EQ(one.batch(3, 8), near);
  EXPECT_EQ(one.batch(1000, 8), far);
  EXPECT_EQ(one.batch(3, 8), near);
  EXPECT_NE(seeded.batch(3, 8), near);
}

void expect_ranks(std::int64_t samples) {
  Sampler whole(samples, 5);
  Sampler shared(samples, 5);
  for (std::int64_t iteration = 0; iteration < 40; ++iteration) {
    std::vector<std::int64_t> together;
    for (std::int64_t rank = 0; rank < 3; ++rank) {
      const auto share = shared.batch(iteration, 4, rank, 3);
      together.insert(together.end(), share.begin(), share.end());
    }
    EXPECT_EQ(together, whole.batch(iteration, 12));
  }
}

TEST(Sampler, RanksTakeWhatOneProcessWould) {
  expect_ranks(50);
  expect_ranks(12);
  expect_ranks(Task::kEndless);
}

TEST(Sampler, Refusals) {
  EXPECT_THAT(message_of([] { Sampler(0, 1); }), HasSubstr("0 samples"));
  EXPECT_THAT(message_of([] { Sampler(-2, 1); }), HasSubstr("-2 samples"));
  Sampler sampler(10, 1);
  EXPECT_EQ(message_of([&] { sampler.batch(5, 10); }), "no error");
  EXPECT_THAT(message_of([&] { sampler.batch(0, 11); }), HasSubstr("there are 10"));
  EXPECT_THAT(message_of([&] { sampler.batch(0, 4, 0, 3); }), HasSubstr("takes 12 samples, 3 x 4"));
  EXPECT_THAT(message_of([&] { sampler.batch(-1, 1); }), HasSubstr("iteration -1"));
  EXPECT_THAT(message_of([&] { sampler.batch(0, 0); }), HasSubstr("batch 0"));
  EXPECT_THAT(message_of([&] { sampler.batch(0, 1, 2, 2); }), HasSubstr("rank 2 of 2"));
  EXPECT_THAT(message_of([&] { sampler.batch(0, 1, -1, 2); }), HasSubstr("rank -1"));
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_NE(message_of([&] { sampler.batch(0, most, 0, 2); }), "no error");
  Sampler endless(Task::kEndless, 1);
  EXPECT_NE(message_of([&] { endless.batch(most, 2); }), "no error");
}

}  // namespace
}  // namespace ebb::test::sampler_test
