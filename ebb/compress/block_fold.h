// SPDX-License-Identifier: Apache-2.0
// Folds runs of neighbours in a row. Runs of 1, 2 and 4 come as constants, so that their loops
// become vector code.
#pragma once

#include <cstdint>
#include <type_traits>

namespace ebb {

// Calls work(run) with `run` as a constant where one is made for it.
template <class Work>
void with_run(std::int64_t run, const Work& work) {
  switch (run) {
    case 1:
      return work(std::integral_constant<std::int64_t, 1>{});
    case 2:
      return work(std::integral_constant<std::int64_t, 2>{});
    case 4:
      return work(std::integral_constant<std::int64_t, 4>{});
    default:
      return work(run);
  }
}

struct Add {
  template <class Number>
  static Number both(Number a, Number b) {
    return a + b;
  }
};

// NaN wins.
struct Larger {
  template <class Number>
  static Number both(Number a, Number b) {
    return b > a || b != b ? b : a;
  }
};

// The fold of row[0, run), first to last.
template <class Fold, class Run, class Number>
Number folded(const Number* row, Run run) {
  Number value = row[0];
  for (std::int64_t i = 1; i < run; ++i) value = Fold::both(value, row[i]);
  return value;
}

}  // namespace ebb
