// SPDX-License-Identifier: Apache-2.0
// The table of strategies with what makes their plans. Private to the room.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "ebb/plan/draft.h"
#include "ebb/plan/strategies.h"

namespace ebb {

// What is special about a row.
struct Traits {
  // Another row tries every plan of this one, so that auto need not: always, or on platforms with
  // one slow tier.
  enum class Covered : std::uint8_t { no, yes, with_one_tier } covered = Covered::no;
  // Lengths that PlanOptions::intervals may give; with `some` the algorithm says how many.
  enum class Intervals : std::uint8_t { none, one, some } intervals = Intervals::none;
  bool period = false;          // takes PlanOptions::period
  bool length_unknown = false;  // can go without the length
  bool charges_start = false;   // keeps its initial state inside a byte budget too
  // A dynamic programme over fast memory alone: it takes long, auto leaves it for the end.
  bool table = false;
};

struct Row {
  StrategyRow row;
  // Both null for auto.
  Draft (*draft)(const Problem&) = nullptr;
  Bytes (*least)(const Problem&) = nullptr;
  Traits traits = {};

  bool is_auto() const { return draft == nullptr; }
  bool is_covered(std::size_t tiers) const {
    return traits.covered == Traits::Covered::yes ||
           (traits.covered == Traits::Covered::with_one_tier && tiers == 1);
  }
};

std::span<const Row> strategy_rows();

// Throws Error(invalid_argument) with all names for an unknown one.
const Row& row_named(std::string_view name);

}  // namespace ebb
