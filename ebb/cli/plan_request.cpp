// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/plan_request.h"

#include <string_view>
#include <utility>

#include "ebb/cli/tier_option.h"
#include "ebb/core/budget_words.h"
#include "ebb/core/error.h"
#include "ebb/core/words.h"

namespace ebb {
namespace {

[[noreturn]] void refuse(const std::string& why) { fail(ErrorCode::invalid_argument, why); }

std::string option_name(std::string_view word) {
  return word == "intervals" ? "--interval" : "--" + std::string(word);
}

Chain read_chain(const PlanReader& reader, const PlanWords& words) {
  if (words.chain) {
    reader.check_nothing_beside_chain(words.step);
    return reader.chain_file(*words.chain);
  }
  if (!words.largest) return reader.uniform_chain(words.step);
  if (words.step.steps)
    refuse("--largest and --steps contradict each other: --largest finds the steps");
  ChainWords one = words.step;
  one.steps = "1";
  return reader.uniform_chain(one);
}

Platform read_platform(const PlanReader& reader, const PlanWords& words, const Chain& chain) {
  Platform platform = words.platform ? reader.platform(*words.platform) : Platform{};
  for (const std::string& word : words.tiers) {
    refuse_real_keys(word);
    platform.tiers.push_back(reader.tier(word, chain));
  }
  check_platform(platform);
  return platform;
}

void check_output(const PlanWords& words) {
  if (words.sweep && words.largest)
    refuse("--sweep and --largest contradict each other; ask one question at a time");
  if (words.sweep && words.options.budget)
    refuse("--sweep and --budget contradict each other: --sweep tries all budgets");
  if (words.largest && words.options.budget && is_share(*words.options.budget)) {
    refuse(
        "--largest and --budget " + shown(*words.options.budget) +
        " contradict each other: what keeping everything takes depends on the steps; give bytes");
  }
  const bool actions = words.actions || words.format;
  if (actions && (words.sweep || words.largest)) {
    refuse("--actions is for one plan; leave out --sweep and --largest");
  }
  if (words.view && (words.sweep || words.largest)) {
    refuse("--view is for one plan; leave out --sweep and --largest");
  }
  if (words.format && *words.format != "ebb" && *words.format != "checkpoint_schedules") {
    refuse("--format is '" + shown(*words.format) + "'; it must be ebb or checkpoint_schedules");
  }
}

}  // namespace

PlanRequest read_request(const PlanWords& words) {
  check_output(words);
  const PlanReader reader(&option_name);
  Chain chain = read_chain(reader, words);
  if (words.largest && !chain.is_uniform()) {
    refuse(
        "--largest repeats one step, but the steps of --chain differ; give \"repeat\" and \"step\" "
        "in the file");
  }
  Platform platform = read_platform(reader, words, chain);
  PlanOptions options = reader.options(words.options, chain);
  options.sync = words.sync;
  return {std::move(chain), std::move(platform), std::move(options)};
}

}  // namespace ebb
