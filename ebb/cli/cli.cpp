// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/cli.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <new>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ebb/cli/bench_command.h"
#include "ebb/cli/eval_command.h"
#include "ebb/cli/heading.h"
#include "ebb/cli/plan_command.h"
#include "ebb/cli/predict_command.h"
#include "ebb/cli/probe_command.h"
#include "ebb/cli/sample_command.h"
#include "ebb/cli/train_command.h"
#include "ebb/cli/view_command.h"
#include "ebb/core/error.h"
#include "ebb/core/version.h"
#include "ebb/core/words.h"

namespace ebb {
namespace {

// The option a mistyped one most likely stands for, as the end of a message.
std::string suggestion(const CLI::App& app, std::string_view word) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  const std::vector<std::string_view> candidates(names.begin(), names.end());
  const std::string near = nearest(word.substr(0, word.find('=')), candidates);
  return near.empty() ? "" : "; did you mean " + near + "?";
}

// Options under the names they have now; whoever uses an old one is told.
std::vector<std::string> renamed(std::span<const std::string> args, std::ostream& err) {
  constexpr std::pair<std::string_view, std::string_view> names[] = {{"--grain", "--chunk"}};
  std::vector<std::string> words(args.begin(), args.end());
  // The others have neither.
  if (args.empty() || (args.front() != "train" && args.front() != "bench")) return words;
  for (std::string& word : words) {
    for (const auto& [old, now] : names) {
      if (word.substr(0, word.find('=')) != old) continue;
      word.replace(0, old.size(), now);
      err << "ebb: " << old << " is called " << now << " now\n";
    }
  }
  return words;
}

// The subcommand that the words name, of any depth.
const CLI::App& deepest(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  return parsed.empty() ? app : deepest(*parsed.front());
}

// "ebb bench async"
std::string full_name(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  return parsed.empty() ? app.get_name() : app.get_name() + " " + full_name(*parsed.front());
}

// One line for each way the words can fail to parse.
std::string usage_message(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& asked = deepest(app);
  const std::string command = full_name(app);
  const std::string help = "\nSee " + command + " --help.\n";
  const std::vector<std::string> extras = app.remaining(true);
  const bool nothing_to_do = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  if (!extras.empty() &&
      (nothing_to_do || dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr)) {
    return command + ": unknown word '" + shown(extras.front()) + "'" +
           suggestion(asked, extras.front()) + help;
  }
  const auto commands = asked.get_subcommands([](const CLI::App*) { return true; });
  if (nothing_to_do && !commands.empty()) {
    return command + ": say what to do, such as " + command + " " + commands.front()->get_name() +
           help;
  }
  const std::string what = error.what();
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    return command + ": " + shown(what.substr(0, what.find(':'))) +
           " needs exactly one value, once" + help;
  }
  return command + ": " + shown(what) + help;
}

int run_parsed(const std::string& name, const Command& command, std::ostream& out,
               std::ostream& err) {
  try {
    command(out, err);
    if (out.flush()) return kDone;
    err << name << ": the output cannot be written\n";
  } catch (const Error& error) {
    err << name << ": " << error.what() << '\n';
    return exit_code(error.code());
  } catch (const std::bad_alloc&) {
    err << name << ": out of memory\n";
  }
  return kFailure;
}

}  // namespace

int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::unavailable:
      return kBadUsage;
    case ErrorCode::infeasible_budget:
    case ErrorCode::out_of_budget:
      return kDoesNotFit;
    case ErrorCode::cancelled:
      return kCancelled;
    case ErrorCode::out_of_memory:
    case ErrorCode::io:
    case ErrorCode::device:
      break;
  }
  return kFailure;
}

int run_cli(std::span<const std::string> args, std::ostream& out, std::ostream& err) {
  CLI::App app("ebb: backpropagation through time in the memory you have.", "ebb");
  app.set_version_flag("--version", std::string("ebb ") + version());
  const Command command = declare_subcommands(
      app,
      {{"plan",
        "Find the fastest exact plan inside a memory budget: does it fit, how slow, which actions",
        declare_plan},
       {"probe", "Measure a step and the tiers of this machine, for plans", declare_probe},
       {"train", "Train a recurrent or spiking net on long sequences inside a memory budget",
        declare_train},
       {"eval", "Evaluate a trained net on the samples of its task", declare_eval},
       {"predict", "Run a trained net on a file of sequences of any length", declare_predict},
       {"sample", "Continue a text with a net that was trained on text", declare_sample},
       {"view", "Show a plan, an experiment, a report, a trace or a training run as a page",
        declare_view},
       {"bench", "Run a paper's experiment on this machine, predicted and measured",
        declare_bench}});
  try {
    std::vector<std::string> words = renamed(args, err);
    std::ranges::reverse(words);  // CLI11 takes the last first
    app.parse(std::move(words));
  } catch (const CLI::Success& help_or_version) {
    app.exit(help_or_version, out, err);
    return out.flush() ? kDone : kFailure;
  } catch (const CLI::ParseError& error) {
    err << usage_message(app, error);
    return kBadUsage;
  }
  return run_parsed(full_name(app), command, out, err);
}

}  // namespace ebb
