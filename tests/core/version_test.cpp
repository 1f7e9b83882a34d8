// SPDX-License-Identifier: Apache-2.0
#include "ebb/core/version.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ebb::test::version_test {
namespace {

TEST(Version, IsThreeNumbers) {
  EXPECT_THAT(version(), testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
}

}  // namespace
}  // namespace ebb::test::version_test
