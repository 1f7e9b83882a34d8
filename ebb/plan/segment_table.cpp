// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/segment_table.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace ebb {
namespace {

using Kind = Choice::Kind;
constexpr float kNever = std::numeric_limits<float>::infinity();
constexpr StartKind kKinds[] = {StartKind::free, StartKind::kept, StartKind::fresh};

// Segments [i,k) of n items in one row of memory: those that start at item i lie together.
std::size_t segment_index(std::size_t n, std::size_t i, std::size_t k) {
  return i * (2 * n - i + 1) / 2 + (k - i - 1);
}

std::size_t table_index(const Items& items, StartKind kind, std::size_t i, std::size_t k) {
  return 3 * segment_index(items.count(), i, k) + static_cast<std::size_t>(kind);
}

std::size_t segment_count(const Items& items) { return items.count() * (items.count() + 1) / 2; }

}  // namespace

Items::Items(const Chain& chain, const Machine& machine, std::vector<std::int64_t> cuts)
    : chain_(chain),
      working_(machine.working),
      copy_rate_(machine.platform.copy_rate),
      cuts_(std::move(cuts)) {
  for (std::size_t j = 0; j + 1 < cuts_.size(); ++j) {
    Bytes live = chain_.live(cuts_[j + 1]);
    Bytes scratch = 0;
    for (std::int64_t s = cuts_[j]; s < cuts_[j + 1]; ++s) {
      live = std::max(live, chain_.live(s));
      scratch = std::max(scratch, chain_.at(s).scratch);
    }
    live_.push_back(live);
    scratch_.push_back(scratch);
  }
}

Bytes Items::beside(Bytes live, Bytes scratch, std::int64_t last) const {
  if (working_) return *working_;
  const StepCost& s = chain_.at(last);
  return add_bytes(add_bytes(live, scratch), add_bytes(s.adjoint, s.tape));
}

std::size_t Items::cut_from(std::int64_t step) const {
  return static_cast<std::size_t>(std::lower_bound(cuts_.begin(), cuts_.end(), step) -
                                  cuts_.begin());
}

std::size_t Items::item_of(std::int64_t step) const { return cut_from(step + 1) - 1; }

Bytes Items::load_need(std::size_t i, std::size_t k) const {
  const Bytes state = chain_.state(cuts_[i]);
  return add_bytes(state, beside(chain_.live(cuts_[i]), 0, cuts_[k] - 1));
}

Bytes Items::record_need(std::size_t i) const {
  const std::int64_t last = cuts_[i + 1] - 1;
  return add_bytes(beside(live_[i], scratch_[i], last), chain_.tape_bytes(cuts_[i], last));
}

double Items::record_seconds(std::size_t i) const {
  return chain_.call() + chain_.record_seconds(cuts_[i], cuts_[i + 1]);
}

double Items::copy_seconds(std::size_t i) const {
  return static_cast<double>(chain_.state(cuts_[i])) / copy_rate_;
}

Choice Items::choice(const Option& o, bool kept) const {
  Choice c;
  c.kind = o.tape ? Kind::keep_tape : Kind::keep_state;
  c.at = cuts_[o.j];
  c.tapes = cuts_[o.j] - cuts_[o.j - 1];
  c.right_level = static_cast<std::int32_t>(o.right());
  c.left_level = static_cast<std::int32_t>(kept ? StartKind::kept : StartKind::free);
  return c;
}

SegmentTable::SegmentTable(const Items& items, Bytes unit, std::int64_t units,
                           std::vector<std::unique_ptr<SegmentTable>> groups)
    : items_(items), unit_(unit), units_(units), groups_(std::move(groups)) {
  const std::size_t n = items_.count();
  table_.assign(3 * segment_count(items_) * static_cast<std::size_t>(units_ + 1), kNever);
  for (std::size_t i = 0; i < n; ++i) fill_leaf(i);
  for (std::size_t length = 2; length <= n; ++length) {
    for (std::size_t i = 0; i + length <= n; ++i) fill(i, i + length);
  }
}

std::int64_t SegmentTable::in_units(Bytes bytes) const {
  return bytes / unit_ + (bytes % unit_ != 0 ? 1 : 0);
}

const float* SegmentTable::row(StartKind kind, std::size_t i, std::size_t k) const {
  return table_.data() + table_index(items_, kind, i, k) * static_cast<std::size_t>(units_ + 1);
}

float* SegmentTable::row(StartKind kind, std::size_t i, std::size_t k) {
  return table_.data() + table_index(items_, kind, i, k) * static_cast<std::size_t>(units_ + 1);
}

float SegmentTable::seconds(StartKind kind, std::size_t i, std::size_t k, std::int64_t m) const {
  return m < 0 ? kNever : row(kind, i, k)[std::min(m, units_)];
}

void SegmentTable::fill_leaf(std::size_t i) {
  if (!groups_.empty()) {
    for (const StartKind kind : kKinds) {
      const SegmentTable& group = *groups_[i];
      std::copy_n(group.row(kind, 0, group.items_.count()), units_ + 1, row(kind, i, i + 1));
    }
    return;
  }
  const auto seconds = static_cast<float>(items_.record_seconds(i));
  const std::int64_t need = in_units(items_.record_need(i));
  const std::int64_t kept = std::max(need, in_units(items_.load_need(i, i + 1)));
  for (const StartKind kind : kKinds) {
    for (std::int64_t m = kind == StartKind::kept ? kept : need; m <= units_; ++m) {
      row(kind, i, i + 1)[m] = seconds;
    }
  }
}

void SegmentTable::apply(float* to, const Items::Option& o, std::size_t i, std::size_t k,
                         bool kept) const {
  const std::int64_t extra = in_units(o.extra);
  const std::int64_t least = std::max(in_units(o.need), extra);
  if (least > units_) return;
  const auto seconds = static_cast<float>(o.seconds);
  const auto count = static_cast<std::size_t>(units_ + 1 - least);
  const float* const right = row(o.right(), o.j, k) + (least - extra);
  float* const out = to + least;
  if (o.end() == i) {
    for (std::size_t m = 0; m < count; ++m) out[m] = std::min(out[m], seconds + right[m]);
    return;
  }
  const float* const left = row(kept ? StartKind::kept : StartKind::free, i, o.end()) + least;
  for (std::size_t m = 0; m < count; ++m) out[m] = std::min(out[m], seconds + right[m] + left[m]);
}

void SegmentTable::fill(std::size_t i, std::size_t k) {
  float* const free = row(StartKind::free, i, k);
  float* const kept = row(StartKind::kept, i, k);
  float* const fresh = row(StartKind::fresh, i, k);
  items_.options(i, k, false, [&](const Items::Option& o) { apply(free, o, i, k, false); });
  items_.options(i, k, true, [&](const Items::Option& o) {
    if (o.end() == i) apply(fresh, o, i, k, true);
    apply(kept, o, i, k, true);
  });
  const std::int64_t load = in_units(items_.load_need(i, k));
  std::fill_n(kept, std::min(load, units_ + 1), kNever);
  const auto save = static_cast<float>(items_.copy_seconds(i));
  for (std::int64_t m = 0; m <= units_; ++m) fresh[m] = std::min(fresh[m], kept[m] + save);
}

Choice SegmentTable::choose(const Segment& segment) const {
  const std::size_t i = items_.item_of(segment.a);
  const std::size_t k = items_.cut_from(segment.b);
  if (k == i + 1) return groups_.empty() ? Choice{} : groups_[i]->choose(segment);
  const auto kind = static_cast<StartKind>(segment.level);
  const std::int64_t m = std::min(segment.room, units_);
  const bool kept = kind != StartKind::free;
  const StartKind left = kept ? StartKind::kept : StartKind::free;
  const auto save = kind == StartKind::fresh ? static_cast<float>(items_.copy_seconds(i)) : 0.0F;
  const bool may_keep = kind != StartKind::fresh ||
                        seconds(StartKind::kept, i, k, m) + save <= seconds(kind, i, k, m);
  Choice best;
  float best_seconds = kNever;
  items_.options(i, k, kept, [&](const Items::Option& o) {
    const std::int64_t extra = in_units(o.extra);
    if (m < std::max(in_units(o.need), extra) || (o.end() != i && !may_keep)) return;
    float value = static_cast<float>(o.seconds) + seconds(o.right(), o.j, k, m - extra);
    if (o.end() != i) value += seconds(left, i, o.end(), m) + save;
    if (value >= best_seconds) return;
    best_seconds = value;
    best = items_.choice(o, kept);
    best.right_room = m - extra;
    best.left_room = m;
  });
  return best;
}

LeastTable::LeastTable(const Items& items, std::vector<std::unique_ptr<LeastTable>> groups)
    : items_(items), groups_(std::move(groups)), table_(3 * segment_count(items), kUnlimited) {
  const std::size_t n = items_.count();
  for (std::size_t i = 0; i < n; ++i) fill_leaf(i);
  for (std::size_t length = 2; length <= n; ++length) {
    for (std::size_t i = 0; i + length <= n; ++i) fill(i, i + length);
  }
}

Bytes& LeastTable::at(StartKind kind, std::size_t i, std::size_t k) {
  return table_[table_index(items_, kind, i, k)];
}

Bytes LeastTable::bytes(StartKind kind, std::size_t i, std::size_t k) const {
  return table_[table_index(items_, kind, i, k)];
}

void LeastTable::fill_leaf(std::size_t i) {
  for (const StartKind kind : kKinds) {
    if (!groups_.empty()) {
      at(kind, i, i + 1) = groups_[i]->bytes(kind, 0, groups_[i]->items_.count());
      continue;
    }
    at(kind, i, i + 1) = items_.record_need(i);
    if (kind == StartKind::kept) {
      at(kind, i, i + 1) = std::max(items_.record_need(i), items_.load_need(i, i + 1));
    }
  }
}

Bytes LeastTable::with(const Items::Option& o, std::size_t i, std::size_t k, bool kept) const {
  const Bytes least = std::max(o.need, add_bytes(o.extra, bytes(o.right(), o.j, k)));
  if (o.end() == i) return least;
  return std::max(least, bytes(kept ? StartKind::kept : StartKind::free, i, o.end()));
}

void LeastTable::fill(std::size_t i, std::size_t k) {
  Bytes free = kUnlimited, kept = kUnlimited, fresh = kUnlimited;
  items_.options(i, k, false,
                 [&](const Items::Option& o) { free = std::min(free, with(o, i, k, false)); });
  items_.options(i, k, true, [&](const Items::Option& o) {
    kept = std::min(kept, with(o, i, k, true));
    if (o.end() == i) fresh = std::min(fresh, with(o, i, k, true));
  });
  kept = std::max(kept, items_.load_need(i, k));
  at(StartKind::free, i, k) = free;
  at(StartKind::kept, i, k) = kept;
  at(StartKind::fresh, i, k) = std::min(fresh, kept);
}

Choice LeastTable::choose(const Segment& segment) const {
  const std::size_t i = items_.item_of(segment.a);
  const std::size_t k = items_.cut_from(segment.b);
  if (k == i + 1) return groups_.empty() ? Choice{} : groups_[i]->choose(segment);
  const auto kind = static_cast<StartKind>(segment.level);
  const bool kept = kind != StartKind::free;
  const bool may_keep =
      kind != StartKind::fresh || bytes(StartKind::kept, i, k) <= bytes(kind, i, k);
  Choice best;
  Bytes least = kUnlimited;
  items_.options(i, k, kept, [&](const Items::Option& o) {
    const Bytes value = with(o, i, k, kept);
    if ((o.end() != i && !may_keep) || value >= least) return;
    least = value;
    best = items_.choice(o, kept);
  });
  return best;
}

}  // namespace ebb
