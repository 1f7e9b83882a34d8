// SPDX-License-Identifier: Apache-2.0
// What every command of the program does alike: refuse wrong words, and say what it takes.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <utility>

#include "tests/cli/run.h"

namespace ebb::test {

// Words, and what the message about them has to say.
inline void expect_refused(const std::string& name,
                           std::initializer_list<std::pair<const char*, const char*>> cases) {
  using ::testing::AllOf, ::testing::HasSubstr;
  for (const auto& [words, expected] : cases) {
    const Outcome outcome = command(name, words);
    EXPECT_EQ(outcome.code, kBadUsage) << words;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("ebb " + name + ": "), HasSubstr(expected))) << words;
  }
}

// The help has these words, and fits a terminal.
inline void expect_help(const std::string& name, std::initializer_list<const char*> words) {
  const Outcome outcome = command(name, "--help");
  EXPECT_EQ(outcome.code, kDone);
  for (const char* word : words) EXPECT_THAT(outcome.out, ::testing::HasSubstr(word));
  for (const std::string& line : lines_of(outcome.out)) EXPECT_LE(line.size(), 80U) << line;
}

}  // namespace ebb::test
