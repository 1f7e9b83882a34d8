// SPDX-License-Identifier: Apache-2.0
#include "ebb/core/layout.h"

#include <algorithm>
#include <ostream>

namespace ebb {
namespace {

constexpr std::size_t kLabelWidth = 14;

}  // namespace

void Lines::add(std::string_view label, const std::string& text) {
  std::string line = "  " + std::string(label == last_ ? "" : label);
  line.resize(kLabelWidth + 2, ' ');
  out_ << line << text << '\n';
  last_ = label;
}

void write_table(const std::vector<std::vector<std::string>>& rows, std::ostream& out) {
  const std::size_t columns = rows.front().size();
  std::vector<std::size_t> widths(columns, 0);
  for (const auto& row : rows) {
    const std::size_t padded = row.size() < columns ? row.size() - 1 : row.size();
    for (std::size_t i = 0; i < padded; ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      std::string cell = row[i];
      cell.resize(std::max(widths[i], cell.size()), ' ');
      line += "  " + cell;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << '\n';
  }
}

}  // namespace ebb
