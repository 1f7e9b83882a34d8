// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/heading.h"

#include <CLI/CLI.hpp>
#include <utility>

namespace ebb {

CLI::Option& Heading::placed(CLI::Option& option, const char* type) const {
  return *option.group(name_)->type_name(type);
}

void Heading::option(const std::string& name, std::string& word, const char* type,
                     const std::string& help) {
  placed(*app_.add_option(name, word, help), type);
}

void Heading::option(const std::string& name, std::optional<std::string>& word, const char* type,
                     const std::string& help) {
  placed(*app_.add_option(name, word, help), type);
}

void Heading::option(const std::string& name, const std::function<void(const std::string&)>& take,
                     const char* type, const std::string& help) {
  placed(*app_.add_option_function<std::string>(name, take, help), type);
}

void Heading::options(const std::string& name, std::vector<std::string>& words, const char* type,
                      const std::string& help) {
  placed(*app_.add_option(name, words, help), type)
      .expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void Heading::argument(const std::string& name, std::string& word, const std::string& help) {
  placed(*app_.add_option(name, word, help), "").required();
}

void Heading::flag(const std::string& name, bool& given, const std::string& help) {
  app_.add_flag(name, given, help)->group(name_);
}

std::string by_default(const char* what, const char* value) {
  return std::string(what) + "; default " + value;
}

void set_footer(CLI::App& app, const std::string& text) { app.footer(text); }

Command declare_subcommands(CLI::App& app, std::initializer_list<Subcommand> subcommands) {
  app.require_subcommand(1);
  std::vector<std::pair<const CLI::App*, Command>> declared;
  for (const Subcommand& subcommand : subcommands) {
    CLI::App& words = *app.add_subcommand(subcommand.name, subcommand.help);
    declared.emplace_back(&words, subcommand.declare(words));
  }
  return [declared = std::move(declared)](std::ostream& out, std::ostream& err) {
    for (const auto& [words, command] : declared) {
      if (words->parsed()) command(out, err);
    }
  };
}

}  // namespace ebb
