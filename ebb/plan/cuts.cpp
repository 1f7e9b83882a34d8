// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/cuts.h"

#include <algorithm>
#include <cmath>

namespace ebb {
namespace {

// Sums of seconds that differ by less, relatively, are the same sum rounded differently. Without it
// straight stretches of a function would lose and gain corners all the time.
constexpr double kRounding = 1e-12;

}  // namespace

// The last corner lies above the line from the one before it to `to`.
bool Hull::above(std::int64_t middle, std::int64_t to) const {
  const std::int64_t from = corners_[corners_.size() - 2];
  const double rise = (value(middle) - value(from)) * static_cast<double>(to - middle);
  const double run = (value(to) - value(middle)) * static_cast<double>(middle - from);
  const double noise = kRounding * (std::abs(value(from)) + std::abs(value(to)));
  return rise - run > noise * static_cast<double>(to - from);
}

void Hull::add(double value) {
  values_.push_back(value);
  bounds_.push_back(value);
  if (std::isinf(value)) return;
  const auto to = static_cast<std::int64_t>(values_.size()) - 1;
  while (corners_.size() >= 2 && above(corners_.back(), to)) corners_.pop_back();
  if (!corners_.empty()) {
    const std::int64_t from = corners_.back();
    const double slope = (value - this->value(from)) / static_cast<double>(to - from);
    work_ += to - from - 1;
    for (std::int64_t i = from + 1; i < to; ++i) {
      bounds_[static_cast<std::size_t>(i)] =
          this->value(from) + slope * static_cast<double>(i - from);
    }
  }
  corners_.push_back(to);
}

std::int64_t CutSearch::find(const Hull& left, const Hull& right, std::int64_t t,
                             std::int64_t first, std::int64_t last, double extra, double& best) {
  first = std::max({first, left.first(), t - right.last()});
  last = std::min({last, left.last(), t - right.first()});
  if (first > last) return -1;
  const auto bound = [&](std::int64_t y) { return left.bound(y) + right.bound(t - y) + extra; };
  const auto hopeless = [&](std::int64_t y) {
    const double b = bound(y);
    const double slack = kRounding * std::abs(b);
    return b + slack >= best || b - slack > best - gain_;
  };
  valley_ = std::clamp(valley_, first, last);
  while (valley_ < last && bound(valley_ + 1) < bound(valley_)) ++valley_;
  while (valley_ > first && bound(valley_ - 1) < bound(valley_)) --valley_;
  std::int64_t found = -1;
  const auto consider = [&](std::int64_t y) {
    ++tries_;
    const double sum = left.value(y) + right.value(t - y) + extra;
    if (sum >= best) return;
    best = sum;
    found = y;
  };
  for (std::int64_t y = valley_; y <= last && !hopeless(y); ++y) consider(y);
  for (std::int64_t y = valley_ - 1; y >= first && !hopeless(y); --y) consider(y);
  return found;
}

}  // namespace ebb
