// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/words.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <utility>
#include <vector>

#include "ebb/core/budget_words.h"
#include "ebb/core/error.h"
#include "ebb/core/units.h"
#include "ebb/core/words.h"
#include "ebb/plan/text.h"

namespace ebb {
namespace {

using Word = std::optional<std::string>;

constexpr std::int64_t kMostSteps = 1'000'000'000'000;
constexpr std::int64_t kMostCount = std::numeric_limits<std::int64_t>::max();
constexpr Bytes kMostStepBytes = Bytes{1} << 62;
constexpr std::size_t kMostFileBytes = std::size_t{1} << 30;

std::string file_text(const std::string& what, const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::string block(std::size_t{1} << 16, '\0');
  while (file && text.size() <= kMostFileBytes) {
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    text.append(block, 0, static_cast<std::size_t>(file.gcount()));
  }
  if (text.size() > kMostFileBytes) {
    fail(ErrorCode::invalid_argument, what, ": the file '", shown(path), "' is larger than 1 GiB");
  }
  if (!file.eof()) {
    const char* const why = errno != 0 ? std::strerror(errno) : "it cannot be read";
    fail(ErrorCode::io, what, ": the file '", shown(path), "' cannot be read: ", why);
  }
  return text;
}

// An error in a file's text, with the file's name before it.
template <class Read>
auto from_file(const std::string& what, const std::string& path, Read read) {
  const std::string text = file_text(what, path);
  try {
    return read(text);
  } catch (const Error& error) {
    fail(error.code(), what, " ", shown(path), ": ", error.what());
  }
}

std::string listed(const std::vector<std::string_view>& names) {
  std::string list;
  for (const std::string_view name : names) list.append(list.empty() ? "" : ", ").append(name);
  return list;
}

std::string suggestion(std::string_view word, const std::vector<std::string_view>& known) {
  const std::string near = nearest(word, known);
  return near.empty() ? "" : "; did you mean " + near + "?";
}

}  // namespace

std::string strategy_text(const Plan& plan, const PlanOptions& options) {
  std::string text = plan.strategy;
  if (options.strategy != plan.strategy) text += " (chosen by " + options.strategy + ")";
  const StrategyRow* const row = find_strategy(plan.strategy);
  return row == nullptr ? text : text.append(": ").append(row->summary);
}

std::string parameters_text(const Plan& plan) {
  std::string text;
  for (const auto& [name, value] : plan.parameters) {
    text += (text.empty() ? "" : ", ") + name + " " + std::to_string(value);
  }
  return text;
}

std::string time_text(const Plan& plan, const Chain& chain) {
  const std::int64_t n = chain.steps();
  const double plain = chain.record_seconds(0, n) + chain.backward_seconds(0, n);
  const double seconds = plan.prediction.seconds;
  std::string text = format_seconds(seconds);
  if (plain > 0) text += ", " + format_number(seconds / plain) + " x keeping every tape";
  return text;
}

std::string bound_text(const Plan& plan) {
  return "no exact plan takes less than " + format_seconds(plan.bound.seconds) + ": gap at most " +
         format_percent(plan.gap());
}

std::string budget_text(Bytes budget, const PlanOptions& options, const Chain& chain) {
  if (!options.slots || budget == kUnlimited) return format_bytes(budget);
  const Bytes slots = budget / std::max<Bytes>(chain.at(0).state, 1);
  return std::to_string(slots) + (slots == 1 ? " slot (" : " slots (") + format_bytes(budget) + ")";
}

Bytes everything_bytes(const Chain& chain, const PlanOptions& options) {
  PlanOptions all;
  all.strategy = "store_all";
  all.working = options.working;
  return least_budget(chain, {}, all).value_or(kUnlimited);
}

Chain PlanReader::uniform_chain(const ChainWords& words) const {
  if (!words.steps) {
    fail(ErrorCode::invalid_argument, name_of_("steps"), " is missing; give ", name_of_("steps"),
         " or ", name_of_("chain"));
  }
  const auto seconds = [this](const char* name, const Word& word, double otherwise) {
    return word ? read_seconds(name_of_(name), *word) : otherwise;
  };
  const auto bytes = [this](const char* name, const Word& word, Bytes least, Bytes otherwise) {
    return word ? read_size(name_of_(name), *word, least, kMostStepBytes) : otherwise;
  };
  const std::int64_t steps = read_count(name_of_("steps"), *words.steps, 0, kMostSteps);
  StepCost step;
  step.forward = seconds("forward", words.forward, 1);
  step.record = seconds("record", words.record, step.forward);
  step.backward = seconds("backward", words.backward, 2);
  step.state = bytes("state", words.state, 1, 1);
  step.tape = bytes("tape", words.tape, 1, 1);
  step.adjoint = bytes("adjoint", words.adjoint, 0, step.state);
  step.scratch = bytes("scratch", words.scratch, 0, 0);
  return Chain::uniform(steps, step, seconds("call", words.call, 0));
}

void PlanReader::check_nothing_beside_chain(const ChainWords& words) const {
  const std::pair<const char*, const Word&> all[] = {
      {"steps", words.steps},       {"forward", words.forward}, {"record", words.record},
      {"backward", words.backward}, {"call", words.call},       {"state", words.state},
      {"tape", words.tape},         {"adjoint", words.adjoint}, {"scratch", words.scratch}};
  for (const auto& [name, word] : all) {
    if (!word) continue;
    fail(ErrorCode::invalid_argument, name_of_("chain"), " and ", name_of_(name),
         " contradict each other: the chain says it all");
  }
}

Chain PlanReader::chain_file(const std::string& path) const {
  return from_file(name_of_("chain"), path,
                   [](const std::string& text) { return chain_from_json(text); });
}

Platform PlanReader::platform(const std::string& word) const {
  const std::vector<std::string> names = preset_names();
  if (std::find(names.begin(), names.end(), word) != names.end()) return preset(word);
  if (word.find_first_of("/.") == std::string::npos) {
    const std::vector<std::string_view> known(names.begin(), names.end());
    fail(ErrorCode::invalid_argument, name_of_("platform"), " is '", shown(word),
         "'; it must be a file such as ./", shown(word), ".json or one of the presets ",
         listed(known), suggestion(word, known));
  }
  return from_file(name_of_("platform"), word,
                   [](const std::string& text) { return platform_from_json(text); });
}

Tier PlanReader::tier(std::string_view word, const Chain& chain) const {
  return tier(split_tier(name_of_("tier"), word), chain);
}

Tier PlanReader::tier(const TierWord& word, const Chain& chain) const {
  return planned_tier(name_of_("tier"), word, chain);
}

std::string PlanReader::strategy(const std::string& word) const {
  std::vector<std::string_view> names;
  for (const StrategyRow& row : strategies()) names.push_back(row.name);
  if (std::find(names.begin(), names.end(), word) != names.end()) return word;
  fail(ErrorCode::invalid_argument, name_of_("strategy"), " is '", shown(word),
       "'; it must be one of ", listed(names), suggestion(word, names));
}

PlanOptions PlanReader::options(const OptionWords& words, const Chain& chain) const {
  PlanOptions options;
  if (words.strategy) options.strategy = strategy(*words.strategy);
  if (words.slots && words.budget) {
    fail(ErrorCode::invalid_argument, name_of_("slots"), " and ", name_of_("budget"),
         " contradict each other; give one of them");
  }
  if (words.slots && words.working) {
    fail(ErrorCode::invalid_argument, name_of_("slots"), " and ", name_of_("working"),
         " contradict each other: slots count states alone, no working set");
  }
  if (words.slots) {
    options.slots = read_count(name_of_("slots"), *words.slots, 0, kMostSteps);
    state_of_all(name_of_("slots"), chain);
  }
  if (words.working) {
    options.working = read_size(name_of_("working"), *words.working, 0, kMostStepBytes);
  }
  if (words.budget) {
    options.budget =
        read_budget(name_of_("budget"), *words.budget, everything_bytes(chain, options));
  }
  if (words.intervals) {
    options.intervals = read_counts(name_of_("intervals"), *words.intervals, 1, kMostCount);
  }
  if (words.period) options.period = read_count(name_of_("period"), *words.period, 1, kMostCount);
  return options;
}

}  // namespace ebb
