// SPDX-License-Identifier: Apache-2.0
// How a subcommand declares its words. Only the files that parse them include CLI11: compiling its
// templates takes longer than compiling a command.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ebb/cli/command.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ebb {

// The options of one heading in a subcommand's help text.
class Heading {
 public:
  Heading(CLI::App& app, std::string name) : app_(app), name_(std::move(name)) {}

  void option(const std::string& name, std::string& word, const char* type,
              const std::string& help);
  void option(const std::string& name, std::optional<std::string>& word, const char* type,
              const std::string& help);
  void option(const std::string& name, const std::function<void(const std::string&)>& take,
              const char* type, const std::string& help);
  // An option that may be given any number of times, one value each.
  void options(const std::string& name, std::vector<std::string>& words, const char* type,
               const std::string& help);
  // A word without a name that has to be there.
  void argument(const std::string& name, std::string& word, const std::string& help);
  void flag(const std::string& name, bool& given, const std::string& help);

 private:
  CLI::Option& placed(CLI::Option& option, const char* type) const;

  CLI::App& app_;
  std::string name_;
};

// "Inputs; default 64"
std::string by_default(const char* what, const char* value);

// Stands at the end of the help text.
void set_footer(CLI::App& app, const std::string& text);

struct Subcommand {
  const char* name;
  const char* help;
  Command (*declare)(CLI::App& app);
};

// One of them has to be named; the command runs that one.
Command declare_subcommands(CLI::App& app, std::initializer_list<Subcommand> subcommands);

}  // namespace ebb
