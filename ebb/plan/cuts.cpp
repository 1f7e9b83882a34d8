// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/cuts.h"

#include <algorithm>
#include <cmath>

namespace ebb {
namespace {

// Sums of seconds that differ by less, relatively, are the same sum rounded differently. Without it
// straight stretches of a function would lose and gain corners all the time.
constexpr double kRounding = 1e-12;

using Bends = std::vector<std::int64_t>;

// The first of ascending bends beyond i, or the last one before it; -1 if there is none.
std::int64_t bend_after(const Bends& bends, std::int64_t i) {
  const auto found = std::upper_bound(bends.begin(), bends.end(), i);
  return found == bends.end() ? -1 : *found;
}
std::int64_t bend_before(const Bends& bends, std::int64_t i) {
  const auto found = std::lower_bound(bends.begin(), bends.end(), i);
  return found == bends.begin() ? -1 : *(found - 1);
}

}  // namespace

// How far the last corner lies above the line from the one before it to `to`; below it: negative.
double Hull::bend(std::int64_t middle, std::int64_t to) const {
  const std::int64_t from = corners_[corners_.size() - 2];
  const double rise = (value(middle) - value(from)) * static_cast<double>(to - middle);
  const double run = (value(to) - value(middle)) * static_cast<double>(middle - from);
  const double noise = kRounding * (std::abs(value(from)) + std::abs(value(to)));
  return std::abs(rise - run) > noise * static_cast<double>(to - from) ? rise - run : 0;
}

void Hull::add(double value) {
  values_.push_back(value);
  bounds_.push_back(value);
  if (std::isinf(value)) return;
  const auto to = static_cast<std::int64_t>(values_.size()) - 1;
  const std::size_t corners = corners_.size();
  while (corners_.size() >= 2) {
    const double above = bend(corners_.back(), to);
    if (above < 0) bends_.push_back(corners_.back());
    if (above <= 0) break;
    corners_.pop_back();
    if (!bends_.empty() && bends_.back() == corners_.back()) bends_.pop_back();
  }
  if (corners_.empty()) {
    edge_ = to;
  } else {
    if (corners_.size() == corners) write_bounds();
    edge_ = corners_.back();
    slope_ = (value - this->value(edge_)) / static_cast<double>(to - edge_);
  }
  corners_.push_back(to);
}

// Between the last two corners.
void Hull::write_bounds() {
  if (corners_.back() == edge_) return;
  work_ += corners_.back() - edge_ - 1;
  for (std::int64_t i = edge_ + 1; i < corners_.back(); ++i) {
    bounds_[static_cast<std::size_t>(i)] = bound(i);
  }
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
  const auto above = [&](std::int64_t y) {
    if (tried_ == Tried::all) return y + 1;
    const std::int64_t of_left = bend_after(left.bends(), y);
    const std::int64_t of_right = bend_before(right.bends(), t - y);
    if (of_right < 0) return of_left < 0 ? last + 1 : of_left;
    return of_left < 0 ? t - of_right : std::min(of_left, t - of_right);
  };
  const auto below = [&](std::int64_t y) {
    if (tried_ == Tried::all) return y - 1;
    const std::int64_t of_left = bend_before(left.bends(), y);
    const std::int64_t of_right = bend_after(right.bends(), t - y);
    return std::max(of_left, of_right < 0 ? -1 : t - of_right);
  };
  for (std::int64_t y = valley_; y <= last && !hopeless(y); y = above(y)) consider(y);
  for (std::int64_t y = below(valley_); y >= first && !hopeless(y); y = below(y)) consider(y);
  return found;
}

}  // namespace ebb
