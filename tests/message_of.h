// SPDX-License-Identifier: Apache-2.0
// What a call that is the caller's mistake says.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "ebb/core/error.h"

namespace ebb::test {

// "no error" if it does not throw; another code than invalid_argument is a failure.
inline std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "no error";
}

}  // namespace ebb::test
