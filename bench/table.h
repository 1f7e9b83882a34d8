// SPDX-License-Identifier: Apache-2.0
// Tables of results: Markdown that also reads well in a terminal, or JSON.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bench/measure.h"

namespace ebb::bench {

class Table {
 public:
  explicit Table(std::string title) : title_(std::move(title)) {}

  // An object of strings and numbers, its keys in the order of the columns; those of the first row
  // head the table.
  void add(Json row) { rows_.push_back(std::move(row)); }

  std::string text() const;
  Json json() const;
  // Rows whose "goal" starts with this word.
  int count(const std::string& verdict) const;

 private:
  std::string title_;
  std::vector<Json> rows_;
};

// "met" or "missed", then what was asked.
std::string goal(bool met, const std::string& asked);

// Four significant digits.
std::string number_text(double value);

}  // namespace ebb::bench
