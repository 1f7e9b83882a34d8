// SPDX-License-Identifier: Apache-2.0
// What a call says that finds no file.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "ebb/core/error.h"

namespace ebb::test {

// "no error" if it does not throw; another code than io is a failure.
inline std::string io_message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io) << error.what();
    return error.what();
  }
  return "no error";
}

}  // namespace ebb::test
