// SPDX-License-Identifier: Apache-2.0
// Which weights of a matrix there are, row by row (CSR).
#pragma once

#include <cstdint>
#include <vector>

namespace ebb {

struct Pattern {
  std::vector<std::int64_t> starts;   // of each row in `columns`, and the end: rows + 1
  std::vector<std::int32_t> columns;  // rising in each row
};

// Each weight is there with probability `density`, 0 < density <= 1, drawn by `seed`.
Pattern random_pattern(std::int64_t rows, std::int64_t columns, double density, std::uint64_t seed);

// Throws Error(invalid_argument) unless it is a pattern of that shape; messages open with `what`.
void check_pattern(const Pattern& pattern, std::int64_t rows, std::int64_t columns,
                   const char* what);

}  // namespace ebb
