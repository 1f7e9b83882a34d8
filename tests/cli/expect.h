// SPDX-License-Identifier: Apache-2.0
// What every command of the program does alike: refuse wrong words, and say what it takes.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <regex>
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

// A report fits a terminal, unless what was measured while the machine was busy with other things has
// more digits than usual: those make lines and columns of tables longer.
inline void expect_fits_a_terminal(const std::string& text) {
  constexpr std::size_t usual = 6;  // characters of a number
  static const std::regex number("[0-9]+([.][0-9]+)?(e[-+][0-9]+)?");
  std::size_t most = 80;
  for (std::sregex_iterator found(text.begin(), text.end(), number), end; found != end; ++found) {
    const auto length = static_cast<std::size_t>(found->length());
    most += std::max(length, usual) - usual;
  }
  for (const std::string& line : lines_of(text)) EXPECT_LE(line.size(), most) << line;
}

}  // namespace ebb::test
