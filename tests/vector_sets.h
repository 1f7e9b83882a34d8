// SPDX-License-Identifier: Apache-2.0
// Cases that run once with every vector instruction set that this machine has, named after it.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "ebb/device/vectors.h"

namespace ebb::test {

class VectorSets : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { use_vector_set(GetParam()); }
  void TearDown() override { use_vector_set(vector_sets().front()); }
};

}  // namespace ebb::test

// Once for each program's file with cases of VectorSets or of a suite made from it.
#define EBB_WITH_EACH_VECTOR_SET(Suite)                                   \
  INSTANTIATE_TEST_SUITE_P(Each, Suite, testing::ValuesIn(vector_sets()), \
                           [](const testing::TestParamInfo<std::string>& of) { return of.param; })
