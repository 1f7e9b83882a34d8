// SPDX-License-Identifier: Apache-2.0
// The question of a plan as a user says it in words: one reader for the program's options and for
// Python's keywords.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ebb/plan/chain.h"
#include "ebb/plan/platform.h"
#include "ebb/plan/strategies.h"
#include "ebb/plan/tier_words.h"

namespace ebb {

// Of a uniform chain.
struct ChainWords {
  std::optional<std::string> steps = {};
  std::optional<std::string> forward = {}, record = {}, backward = {}, call = {};  // seconds
  std::optional<std::string> state = {}, tape = {}, adjoint = {}, scratch = {};    // bytes
};

struct OptionWords {
  std::optional<std::string> strategy = {}, slots = {}, budget = {}, working = {};
  std::optional<std::string> intervals = {}, period = {};  // intervals: joined by commas
};

// What shares of budgets are of: the least budget in which store_all keeps everything, its working
// set included.
Bytes everything_bytes(const Chain& chain, const PlanOptions& options);

// What is said of a plan, in the program and on pages. "revolve (chosen by auto): states in fast memory"
std::string strategy_text(const Plan& plan, const PlanOptions& options);
// "every 3, tail 13"; empty without any.
std::string parameters_text(const Plan& plan);
// "107 s, 1.188 x keeping every tape"
std::string time_text(const Plan& plan, const Chain& chain);
// "no exact plan takes less than 106.9 s: gap at most 0.00561 %"
std::string bound_text(const Plan& plan);

// "12 KiB", or "3 slots (12 KiB)" in the accounting of slots.
std::string budget_text(Bytes budget, const PlanOptions& options, const Chain& chain);

// Every reader throws Error(invalid_argument) that names the word as the caller does, its value and
// what is allowed; Error(io) for a file that cannot be read.
class PlanReader {
 public:
  // How the caller calls a word of the structs above, or "chain", "platform", "tier".
  using NameOf = std::string (*)(std::string_view);
  explicit PlanReader(NameOf name_of = &as_it_is) : name_of_(name_of) {}

  // Left out: forward 1, record as forward, backward 2, state and tape 1, adjoint as state, call and
  // scratch 0. steps must be there.
  Chain uniform_chain(const ChainWords& words) const;
  // A chain that is given whole leaves nothing to say beside it.
  void check_nothing_beside_chain(const ChainWords& words) const;
  // chain_from_json of a file.
  Chain chain_file(const std::string& path) const;
  // A preset's name, or the path of a file, which has a '/' or a '.' in it.
  Platform platform(const std::string& word) const;
  Tier tier(std::string_view word, const Chain& chain) const;
  Tier tier(const TierWord& word, const Chain& chain) const;
  // Only the members that have words are set. A budget may be a share: "5%".
  PlanOptions options(const OptionWords& words, const Chain& chain) const;

 private:
  static std::string as_it_is(std::string_view word) { return std::string(word); }
  std::string strategy(const std::string& word) const;

  NameOf name_of_;
};

}  // namespace ebb
