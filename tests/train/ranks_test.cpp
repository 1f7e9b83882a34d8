// SPDX-License-Identifier: Apache-2.0
// A process alone; several are in ranks_program.cpp.
#include "ebb/train/ranks.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <vector>

namespace ebb::test::ranks_test {
namespace {

void expect_alone(Ranks& ranks) {
  EXPECT_EQ(ranks.rank(), 0);
  EXPECT_EQ(ranks.size(), 1);
  std::vector<float> floats{1, 2};
  std::vector<double> doubles{3};
  ranks.sum(floats);
  ranks.sum(doubles);
  EXPECT_EQ(floats, (std::vector<float>{1, 2}));
  EXPECT_EQ(doubles, std::vector<double>{3});
  EXPECT_TRUE(ranks.any(true));
  EXPECT_FALSE(ranks.any(false));
  ranks.end_all(3);
}

TEST(Ranks, AloneEverythingIsAsItWas) {
  for (int i = 0; i < 2; ++i) {
    Ranks ranks;
    expect_alone(ranks);
  }
}

// Words that are no number of processes above 1 do not start MPI.
TEST(Ranks, OneProcessOfALauncherIsAlone) {
  for (const char* value : {"1", "0", "", "many"}) {
    ::setenv("OMPI_COMM_WORLD_SIZE", value, 1);
    Ranks ranks;
    expect_alone(ranks);
  }
  ::unsetenv("OMPI_COMM_WORLD_SIZE");
}

}  // namespace
}  // namespace ebb::test::ranks_test
