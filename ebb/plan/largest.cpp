// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/largest.h"

#include <algorithm>
#include <cstddef>

namespace ebb {
namespace {

Largest::Sizes larger(Largest::Sizes a, Largest::Sizes b) {
  return {std::max(a.live, b.live), std::max(a.scratch, b.scratch)};
}

}  // namespace

Largest::Sizes Largest::search(const Chain& chain, std::int64_t from, std::int64_t to) {
  if (tree_.empty()) build(chain);
  Sizes most;
  auto a = static_cast<std::size_t>(from + chain.steps());
  auto b = static_cast<std::size_t>(to + chain.steps());
  for (; a < b; a /= 2, b /= 2) {
    if (a % 2 == 1) most = larger(most, tree_[a++]);
    if (b % 2 == 1) most = larger(most, tree_[--b]);
  }
  return most;
}

void Largest::build(const Chain& chain) {
  const auto steps = static_cast<std::size_t>(chain.steps());
  tree_.resize(2 * steps);
  for (std::int64_t i = 0; i < chain.steps(); ++i) {
    const StepCost& step = chain.at(i);
    tree_[steps + static_cast<std::size_t>(i)] = {step.live_bytes(), step.scratch};
  }
  for (std::size_t i = steps - 1; i > 0; --i) tree_[i] = larger(tree_[2 * i], tree_[2 * i + 1]);
}

}  // namespace ebb
