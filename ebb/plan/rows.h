// SPDX-License-Identifier: Apache-2.0
// The table of strategies with what makes their plans. Private to the room.
#pragma once

#include <span>
#include <string_view>

#include "ebb/plan/draft.h"
#include "ebb/plan/strategies.h"

namespace ebb {

struct Row {
  StrategyRow row;
  // Both null for auto.
  Draft (*draft)(const Problem&) = nullptr;
  Bytes (*least)(const Problem&) = nullptr;
  // Another row tries every plan of this one: auto need not.
  bool covered = false;

  // A dynamic programme over fast memory alone.
  bool is_table() const { return row.algorithm == "mix" && row.name != "store_all"; }
  bool is_auto() const { return draft == nullptr; }
};

std::span<const Row> strategy_rows();

// Throws Error(invalid_argument) with all names for an unknown one.
const Row& row_named(std::string_view name);

}  // namespace ebb
