// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/plan_request.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <string_view>
#include <utility>

#include "ebb/cli/tier_option.h"
#include "ebb/cli/words.h"
#include "ebb/core/error.h"
#include "ebb/plan/text.h"

namespace ebb {
namespace {

using Word = std::optional<std::string>;

constexpr std::int64_t kMostSteps = 1'000'000'000'000;
constexpr std::int64_t kMostCount = std::numeric_limits<std::int64_t>::max();
constexpr Bytes kMostStepBytes = Bytes{1} << 62;
constexpr std::size_t kMostFileBytes = std::size_t{1} << 30;

[[noreturn]] void refuse(const std::string& why) { fail(ErrorCode::invalid_argument, why); }

std::string file_text(std::string_view option, const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::string block(std::size_t{1} << 16, '\0');
  while (file && text.size() <= kMostFileBytes) {
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    text.append(block, 0, static_cast<std::size_t>(file.gcount()));
  }
  if (text.size() > kMostFileBytes) {
    fail(ErrorCode::invalid_argument, option, ": the file '", shown(path),
         "' is larger than 1 GiB");
  }
  if (!file.eof()) {
    const char* const why = errno != 0 ? std::strerror(errno) : "it cannot be read";
    fail(ErrorCode::io, option, ": the file '", shown(path), "' cannot be read: ", why);
  }
  return text;
}

// An error in a file's text, with the file's name before it.
template <class Read>
auto from_file(std::string_view option, const std::string& path, Read read) {
  const std::string text = file_text(option, path);
  try {
    return read(text);
  } catch (const Error& error) {
    fail(error.code(), option, " ", shown(path), ": ", error.what());
  }
}

Chain read_chain(const PlanWords& words) {
  const std::pair<const char*, const Word&> costs[] = {
      {"--steps", words.steps},       {"--forward", words.forward}, {"--record", words.record},
      {"--backward", words.backward}, {"--state", words.state},     {"--tape", words.tape}};
  if (words.chain) {
    for (const auto& [option, word] : costs) {
      if (word)
        refuse(std::string("--chain and ") + option +
               " contradict each other: the file says it all");
    }
    return from_file("--chain", *words.chain,
                     [](const std::string& text) { return chain_from_json(text); });
  }
  if (words.largest && words.steps)
    refuse("--largest and --steps contradict each other: --largest finds the steps");
  if (!words.steps && !words.largest)
    refuse("--steps is missing; give --steps N or --chain FILE.json");
  const std::int64_t steps = words.steps ? read_count("--steps", *words.steps, 0, kMostSteps) : 1;
  const auto size = [](const char* option, const Word& word) {
    return word ? read_size(option, *word, 1, kMostStepBytes) : 1;
  };
  StepCost step;
  step.forward = words.forward ? read_seconds("--forward", *words.forward) : 1;
  step.record = words.record ? read_seconds("--record", *words.record) : step.forward;
  step.backward = words.backward ? read_seconds("--backward", *words.backward) : 2;
  step.state = size("--state", words.state);
  step.tape = size("--tape", words.tape);
  step.adjoint = step.state;
  return Chain::uniform(steps, step);
}

Bytes state_of_all(const Chain& chain, const char* option) {
  const Bytes first = chain.at(0).state;
  for (std::int64_t i = 1; !chain.is_uniform() && i < chain.steps(); ++i) {
    if (chain.at(i).state == first) continue;
    refuse(std::string(option) +
           " counts states, but the chain's states differ in size; give bytes instead");
  }
  return first;
}

Platform read_platform(const PlanWords& words, const Chain& chain) {
  Platform platform;
  if (words.platform) {
    const std::vector<std::string> names = preset_names();
    const bool is_preset = std::find(names.begin(), names.end(), *words.platform) != names.end();
    const bool is_path = words.platform->find_first_of("/.") != std::string::npos;
    if (!is_preset && !is_path) {
      const std::vector<std::string_view> known(names.begin(), names.end());
      const std::string near = nearest(*words.platform, known);
      std::string list;
      for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
      refuse("--platform is '" + shown(*words.platform) + "'; it must be a file such as ./" +
             shown(*words.platform) + ".json or one of the presets " + list +
             (near.empty() ? "" : "; did you mean " + near + "?"));
    }
    platform = is_preset ? preset(*words.platform)
                         : from_file("--platform", *words.platform,
                                     [](const std::string& t) { return platform_from_json(t); });
  }
  for (const std::string& word : words.tiers) {
    const TierOption option = parse_tier(word);
    platform.tiers.push_back(
        option.sized(option.slots ? state_of_all(chain, "--tier ... slots=") : 1));
  }
  check_platform(platform);
  return platform;
}

std::string read_strategy(const Word& word) {
  if (!word) return PlanOptions{}.strategy;
  std::vector<std::string_view> names;
  for (const StrategyRow& row : strategies()) names.push_back(row.name);
  if (std::find(names.begin(), names.end(), *word) != names.end()) return *word;
  const std::string near = nearest(*word, names);
  std::string list;
  for (const std::string_view name : names) list.append(list.empty() ? "" : ", ").append(name);
  refuse("--strategy is '" + shown(*word) + "'; it must be one of " + list +
         (near.empty() ? "" : "; did you mean " + near + "?"));
}

PlanOptions read_options(const PlanWords& words, const Chain& chain) {
  PlanOptions options;
  options.strategy = read_strategy(words.strategy);
  if (words.slots && words.budget)
    refuse("--slots and --budget contradict each other; give one of them");
  if (words.slots && words.working) {
    refuse("--slots and --working contradict each other: slots count states alone, no working set");
  }
  if (words.slots) {
    options.slots = read_count("--slots", *words.slots, 0, kMostSteps);
    state_of_all(chain, "--slots");
  }
  if (words.budget) options.budget = read_size("--budget", *words.budget, 0, kUnlimited);
  if (words.working) options.working = read_size("--working", *words.working, 0, kMostStepBytes);
  if (words.interval) options.intervals = read_counts("--interval", *words.interval, 1, kMostCount);
  if (words.period) options.period = read_count("--period", *words.period, 1, kMostCount);
  options.sync = words.sync;
  return options;
}

void check_output(const PlanWords& words) {
  if (words.sweep && words.largest)
    refuse("--sweep and --largest contradict each other; ask one question at a time");
  if (words.sweep && words.budget)
    refuse("--sweep and --budget contradict each other: --sweep tries all budgets");
  const bool actions = words.actions || words.format;
  if (actions && (words.sweep || words.largest)) {
    refuse("--actions is for one plan; leave out --sweep and --largest");
  }
  if (words.format && *words.format != "ebb" && *words.format != "checkpoint_schedules") {
    refuse("--format is '" + shown(*words.format) + "'; it must be ebb or checkpoint_schedules");
  }
}

}  // namespace

PlanRequest read_request(const PlanWords& words) {
  check_output(words);
  Chain chain = read_chain(words);
  if (words.largest && !chain.is_uniform()) {
    refuse(
        "--largest repeats one step, but the steps of --chain differ; give \"repeat\" and \"step\" "
        "in the file");
  }
  Platform platform = read_platform(words, chain);
  PlanOptions options = read_options(words, chain);
  return {std::move(chain), std::move(platform), std::move(options)};
}

}  // namespace ebb
