// SPDX-License-Identifier: Apache-2.0
// The options of one heading in a subcommand's help text.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace ebb {

class Heading {
 public:
  Heading(CLI::App& app, const char* name) : app_(app), name_(name) {}

  template <class Word>
  CLI::Option* option(const char* name, Word& word, const char* type, const std::string& help) {
    return app_.add_option(name, word, help)->group(name_)->type_name(type);
  }
  // An option that may be given any number of times, one value each.
  template <class Words>
  CLI::Option* options(const char* name, Words& words, const char* type, const std::string& help) {
    return option(name, words, type, help)
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }
  void flag(const char* name, bool& given, const char* help) {
    app_.add_flag(name, given, help)->group(name_);
  }

 private:
  CLI::App& app_;
  const char* name_;
};

}  // namespace ebb
