// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/held.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace ebb {

std::size_t HeldItems::home(std::int64_t step) const {
  // Fibonacci hashing: the upper bits of a product with 2^64 / golden ratio.
  return static_cast<std::size_t>((static_cast<std::uint64_t>(step) * 0x9E3779B97F4A7C15U) >>
                                  shift_);
}

std::size_t HeldItems::slot_of(std::int64_t step) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t i = home(step);
  while (slots_[i].step != step && slots_[i].step != kNone) i = (i + 1) & mask;
  return i;
}

Times* HeldItems::find(std::int64_t step) {
  if (size_ == 0) return nullptr;
  Slot& slot = slots_[slot_of(step)];
  return slot.step == step ? &slot.times : nullptr;
}

void HeldItems::insert(std::int64_t step, Times times) {
  if (2 * (size_ + 1) > slots_.size()) grow();
  slots_[slot_of(step)] = {step, times};
  ++size_;
}

void HeldItems::erase(std::int64_t step) {
  if (size_ == 0) return;
  const std::size_t i = slot_of(step);
  if (slots_[i].step == step) erase_slot(i);
}

void HeldItems::erase_slot(std::size_t hole) {
  // Items after the hole move into it unless that would put them before their home.
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = (hole + 1) & mask; slots_[i].step != kNone; i = (i + 1) & mask) {
    if (((i - home(slots_[i].step)) & mask) < ((i - hole) & mask)) continue;
    slots_[hole] = slots_[i];
    hole = i;
  }
  slots_[hole].step = kNone;
  --size_;
}

bool HeldItems::shorter_than_table(std::int64_t from, std::int64_t to) const {
  return static_cast<std::uint64_t>(to - from) < slots_.size();
}

double HeldItems::latest_free(std::int64_t from, std::int64_t to) const {
  double latest = 0;
  if (size_ == 0) return latest;
  if (shorter_than_table(from, to)) {
    for (std::int64_t step = from; step < to; ++step) {
      const Slot& slot = slots_[slot_of(step)];
      if (slot.step == step) latest = std::max(latest, slot.times.free);
    }
    return latest;
  }
  for (const Slot& slot : slots_) {
    if (slot.step >= from && slot.step < to) latest = std::max(latest, slot.times.free);
  }
  return latest;
}

void HeldItems::erase(std::int64_t from, std::int64_t to) {
  if (size_ == 0) return;
  if (shorter_than_table(from, to)) {
    for (std::int64_t step = from; step < to; ++step) erase(step);
    return;
  }
  for (std::size_t i = 0; i < slots_.size();) {
    // A slot is looked at again after an erase, since another item may have moved into it.
    if (slots_[i].step >= from && slots_[i].step < to) {
      erase_slot(i);
    } else {
      ++i;
    }
  }
}

std::int64_t HeldItems::any() const {
  return std::find_if(slots_.begin(), slots_.end(), [](const Slot& s) { return s.step != kNone; })
      ->step;
}

void HeldItems::grow() {
  const std::size_t size = std::max<std::size_t>(16, 2 * slots_.size());
  const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(size));
  shift_ = 64;
  for (std::size_t n = size; n > 1; n /= 2) --shift_;
  for (const Slot& slot : old) {
    if (slot.step != kNone) slots_[slot_of(slot.step)] = slot;
  }
}

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
