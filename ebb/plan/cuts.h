// SPDX-License-Identifier: Apache-2.0
// The least sum over cuts: min over y of left(y) + right(t - y), as t rises, exact without trying
// every y.
//
// Each function lies above its lower convex hull. The sum of two convex functions falls into one
// valley and rises again: the search starts in the valley of the hulls and ends on either side
// where even the hulls are no better than the best sum found. The costs of dynamic programmes are
// convex or nearly so; then one or two y are tried. Any other function only takes longer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ebb {

// Entries of an exact table that a plan may cost: 10^4 steps with 1000 slots.
inline constexpr double kTableEntries = 1e7;
// Entries of a table of capacities: chains that run steps more often than they say are cut less well.
inline constexpr std::size_t kCapacities = 1 << 23;

// A function of 0, 1, 2, … and its lower convex hull, growing one value at a time. Infinite values
// are allowed.
class Hull {
 public:
  void add(double value);
  double value(std::int64_t i) const { return values_[static_cast<std::size_t>(i)]; }
  double bound(std::int64_t i) const {
    return i > edge_ ? value(edge_) + slope_ * static_cast<double>(i - edge_)
                     : bounds_[static_cast<std::size_t>(i)];
  }
  // Beyond these the function is infinite; last < first where it is so everywhere.
  std::int64_t first() const { return corners_.empty() ? 0 : corners_.front(); }
  std::int64_t last() const { return corners_.empty() ? -1 : corners_.back(); }
  // Where the hull changes its slope, ascending.
  const std::vector<std::int64_t>& bends() const { return bends_; }
  // Bounds written between corners so far.
  std::int64_t work() const { return work_; }

 private:
  double bend(std::int64_t middle, std::int64_t to) const;
  void write_bounds();

  std::vector<double> values_, bounds_;
  std::vector<std::int64_t> corners_;  // where the function lies on its hull
  std::vector<std::int64_t> bends_;
  // The corner before the last, and the slope from there: most last corners do not stay, so the
  // bounds between the two are written when another one follows.
  std::int64_t edge_ = 0;
  double slope_ = 0;
  std::int64_t work_ = 0;
};

// Which cuts of the valley are tried. bends: those where a hull changes its slope. Costs that rise
// in stairs have wide flat valleys; the best cut nearly always ends a stair, and few do.
enum class Tried { all, bends };

// Searches sums that must be better than the best so far by `gain` at least: 1 for whole numbers, 0
// for any others. Calls with a rising t find the valley where the last one left it.
class CutSearch {
 public:
  explicit CutSearch(double gain, Tried tried = Tried::all) : gain_(gain), tried_(tried) {}
  // The least left(y) + right(t - y) + extra over first <= y <= last that betters `best`, which
  // becomes it; -1 if there is none.
  std::int64_t find(const Hull& left, const Hull& right, std::int64_t t, std::int64_t first,
                    std::int64_t last, double extra, double& best);
  // Cuts tried so far.
  std::int64_t tries() const { return tries_; }

 private:
  double gain_;
  Tried tried_;
  std::int64_t valley_ = 0;
  std::int64_t tries_ = 0;
};

}  // namespace ebb
