// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/held.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace ebb {

std::size_t TapeRanges::first_ending_after(std::int64_t step) const {
  const std::size_t size = ranges_.size();
  if (size == 0 || ranges_[size - 1].to <= step) return size;
  if (size == 1 || ranges_[size - 2].to <= step) return size - 1;
  const auto found = std::partition_point(ranges_.begin(), ranges_.end(),
                                          [step](const Range& r) { return r.to <= step; });
  return static_cast<std::size_t>(found - ranges_.begin());
}

std::int64_t TapeRanges::first_held(std::int64_t step) const {
  const std::size_t i = first_ending_after(step);
  if (i == ranges_.size()) return std::numeric_limits<std::int64_t>::max();
  return std::max(step, ranges_[i].from);
}

std::int64_t TapeRanges::last_missing(std::int64_t step) const {
  const std::size_t i = first_ending_after(step - 1);
  const bool held = i < ranges_.size() && ranges_[i].from < step;
  return held ? ranges_[i].from - 1 : step - 1;
}

void TapeRanges::insert(std::int64_t from, std::int64_t to) {
  const std::size_t i = first_ending_after(from);
  const auto at = ranges_.begin() + static_cast<std::ptrdiff_t>(i);
  const bool joins_below = i > 0 && ranges_[i - 1].to == from;
  const bool joins_above = i < ranges_.size() && ranges_[i].from == to;
  if (joins_below && joins_above) {
    ranges_[i - 1].to = ranges_[i].to;
    ranges_.erase(at);
  } else if (joins_below) {
    ranges_[i - 1].to = to;
  } else if (joins_above) {
    ranges_[i].from = from;
  } else {
    ranges_.insert(at, {from, to});
  }
}

void TapeRanges::erase(std::int64_t from, std::int64_t to) {
  const std::size_t i = first_ending_after(from);
  const auto at = ranges_.begin() + static_cast<std::ptrdiff_t>(i);
  Range& range = ranges_[i];
  if (range.from == from && range.to == to) {
    ranges_.erase(at);
  } else if (range.to == to) {
    range.to = from;
  } else if (range.from == from) {
    range.from = to;
  } else {
    const Range below{range.from, from};
    range.from = to;
    ranges_.insert(at, below);
  }
}

}  // namespace ebb
