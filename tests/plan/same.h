// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include "ebb/plan/plan.h"

namespace ebb::test {

// All that is counted; seconds may be summed in another order, so each test says how they compare.
inline void expect_same_counts(const Prediction& a, const Prediction& b) {
  EXPECT_EQ(a.forwards, b.forwards);
  EXPECT_EQ(a.advances, b.advances);
  EXPECT_EQ(a.records, b.records);
  EXPECT_EQ(a.actions, b.actions);
  EXPECT_EQ(a.stall_seconds, b.stall_seconds);
  EXPECT_EQ(a.peak, b.peak);
  EXPECT_EQ(a.moved, b.moved);
}

}  // namespace ebb::test
