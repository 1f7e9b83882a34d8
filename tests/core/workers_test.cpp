// SPDX-License-Identifier: Apache-2.0
#include "ebb/core/workers.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <stdexcept>
#include <thread>

#include "tests/message_of.h"

namespace ebb::test::workers_test {
namespace {

TEST(Workers, EveryThreadWorksOnceACall) {
  for (const int threads : {1, 2, 5}) {
    Workers workers(threads);
    std::vector<int> calls(static_cast<std::size_t>(threads));
    for (int i = 0; i < 2000; ++i)
      workers.all([&](int thread) { ++calls[static_cast<std::size_t>(thread)]; });
    EXPECT_EQ(calls, std::vector<int>(static_cast<std::size_t>(threads), 2000));
  }
}

TEST(Workers, SplitsIntoPiecesThatTouch) {
  for (const int threads : {1, 3, 8}) {
    Workers workers(threads);
    for (const std::int64_t count : {0, 1, 11, 12, 13, 500}) {
      std::vector<int> done(static_cast<std::size_t>(count));
      workers.split(count, 12, [&](std::int64_t from, std::int64_t to) {
        EXPECT_EQ(from % 12, 0);
        for (std::int64_t i = from; i < to; ++i) ++done[static_cast<std::size_t>(i)];
      });
      EXPECT_EQ(done, std::vector<int>(static_cast<std::size_t>(count), 1));
    }
  }
}

TEST(Workers, WhatAThreadThrowsReachesTheCaller) {
  Workers workers(3);
  for (const int bad : {0, 2}) {
    EXPECT_THROW(workers.all([bad](int thread) {
      if (thread == bad) throw std::runtime_error("no");
    }),
                 std::runtime_error);
  }
  int calls = 0;
  workers.split(1, 1, [&](std::int64_t, std::int64_t) { ++calls; });
  EXPECT_EQ(calls, 1);
}

TEST(Workers, ProcessorsAreThoseThatMayBeUsed) {
  EXPECT_GE(usable_processors(), 1);
  int found = 0;
  // In a thread of its own: the others keep theirs.
  std::thread([&] {
    cpu_set_t set;
    ASSERT_EQ(::sched_getaffinity(0, sizeof(set), &set), 0);
    int first = 0;
    while (!CPU_ISSET(first, &set)) ++first;
    CPU_ZERO(&set);
    CPU_SET(first, &set);
    ASSERT_EQ(::sched_setaffinity(0, sizeof(set), &set), 0);
    found = usable_processors();
  }).join();
  EXPECT_EQ(found, 1);
}

TEST(Workers, RefusesNumbersThatCannotBe) {
  EXPECT_EQ(test::message_of([] { Workers workers(0); }), "threads is 0; it must be 1 to 1024");
}

}  // namespace
}  // namespace ebb::test::workers_test
