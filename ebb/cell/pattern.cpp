// SPDX-License-Identifier: Apache-2.0
#include "ebb/cell/pattern.h"

#include "ebb/core/error.h"
#include "ebb/core/random.h"

namespace ebb {

Pattern random_pattern(std::int64_t rows, std::int64_t columns, double density,
                       std::uint64_t seed) {
  const Random random(seed, 0x7061747465726e);  // apart from other streams of the seed
  Pattern pattern;
  pattern.starts.push_back(0);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      if (random.uniform(static_cast<std::uint64_t>(i * columns + j)) < density) {
        pattern.columns.push_back(static_cast<std::int32_t>(j));
      }
    }
    pattern.starts.push_back(static_cast<std::int64_t>(pattern.columns.size()));
  }
  return pattern;
}

void check_pattern(const Pattern& pattern, std::int64_t rows, std::int64_t columns,
                   const char* what) {
  const auto entries = static_cast<std::int64_t>(pattern.columns.size());
  if (static_cast<std::int64_t>(pattern.starts.size()) != rows + 1 || pattern.starts.front() != 0 ||
      pattern.starts.back() != entries) {
    fail(ErrorCode::invalid_argument, what, ": starts must be ", rows + 1,
         " numbers from 0 to the number of columns given, ", entries);
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t from = pattern.starts[static_cast<std::size_t>(i)];
    const std::int64_t to = pattern.starts[static_cast<std::size_t>(i) + 1];
    if (from > to || from < 0 || to > entries) {
      fail(ErrorCode::invalid_argument, what, ": row ", i, " starts at ", from, " and ends at ",
           to);
    }
    for (std::int64_t e = from; e < to; ++e) {
      const std::int32_t column = pattern.columns[static_cast<std::size_t>(e)];
      const std::int32_t least =
          e == from ? 0 : pattern.columns[static_cast<std::size_t>(e) - 1] + 1;
      if (column < least || column >= columns) {
        fail(ErrorCode::invalid_argument, what, ": row ", i, " has column ", column,
             "; columns must rise and be below ", columns);
      }
    }
  }
}

}  // namespace ebb
