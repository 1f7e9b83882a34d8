// SPDX-License-Identifier: Apache-2.0
// Cases that run once with every vector instruction set that this machine has, named after it; with
// the widest and the narrowest in ./dev test.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ebb/device/vectors.h"
#include "tests/thorough.h"

namespace ebb::test {

class VectorSets : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { use_vector_set(GetParam()); }
  void TearDown() override { use_vector_set(vector_sets().front()); }
};

inline std::vector<std::string> tried_vector_sets() {
  std::vector<std::string> sets = vector_sets();
  if (quick() && sets.size() > 2) sets = {sets.front(), sets.back()};
  return sets;
}

}  // namespace ebb::test

// Once for each program's file with cases of VectorSets or of a suite made from it.
#define EBB_WITH_EACH_VECTOR_SET(Suite)                                         \
  INSTANTIATE_TEST_SUITE_P(Each, Suite, testing::ValuesIn(tried_vector_sets()), \
                           [](const testing::TestParamInfo<std::string>& of) { return of.param; })
