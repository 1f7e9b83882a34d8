// SPDX-License-Identifier: Apache-2.0
#include "ebb/core/error.h"

#include <gtest/gtest.h>

#include <string>
#include <type_traits>

namespace ebb::test::error_test {
namespace {

TEST(Error, SaysTheProblemAndBehindItTheRemedy) {
  const Error error(ErrorCode::infeasible_budget, "it needs 5 bytes; there are 4", 5,
                    "raise the budget");
  EXPECT_STREQ(error.what(), "it needs 5 bytes; there are 4; raise the budget");
  EXPECT_EQ(error.problem(), "it needs 5 bytes; there are 4");
  EXPECT_EQ(error.remedy(), "raise the budget");
  EXPECT_EQ(error.least_budget(), 5);
  EXPECT_EQ(error.code(), ErrorCode::infeasible_budget);
}

TEST(Error, NeedsNoRemedy) {
  const Error error(ErrorCode::io, "the file; is gone");
  EXPECT_STREQ(error.what(), "the file; is gone");
  EXPECT_EQ(error.problem(), "the file; is gone");
  EXPECT_EQ(error.remedy(), "");
  EXPECT_FALSE(error.least_budget());
}

// Words of callers get into problems.
TEST(Error, MayNameAWordWithAZeroByte) {
  const std::string problem("cannot read 1\0M", 15);
  EXPECT_EQ(Error(ErrorCode::io, problem).problem(), problem);
  EXPECT_EQ(Error(ErrorCode::io, problem).remedy(), "");
  const Error error(ErrorCode::io, problem, {}, "write 1M");
  EXPECT_EQ(error.problem(), problem);
  EXPECT_EQ(error.remedy(), "write 1M");
}

TEST(Error, ACopyHasItsOwnWords) {
  const Error copy = [] { return Error(ErrorCode::io, std::string(99, 'p'), {}, "remedy"); }();
  const Error again = copy;  // NOLINT(performance-unnecessary-copy-initialization): the point
  EXPECT_EQ(again.problem(), std::string(99, 'p'));
  EXPECT_EQ(again.remedy(), "remedy");
  // What is thrown is copied, and that must not throw in turn.
  EXPECT_TRUE(std::is_nothrow_copy_constructible_v<Error>);
}

}  // namespace
}  // namespace ebb::test::error_test
