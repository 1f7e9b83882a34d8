// SPDX-License-Identifier: Apache-2.0
// A table of values by step (0 or more): open addressing, O(1) for each, and no allocation unless
// more are held than ever before or than were reserved.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace ebb {

template <class Value>
class StepTable {
 public:
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  void reserve(std::size_t steps) {
    while (slots_.size() < 2 * steps) grow();
  }

  // null: it is not held. Pointers hold until the next insert or erase.
  Value* find(std::int64_t step) {
    if (size_ == 0) return nullptr;
    Slot& slot = slots_[slot_of(step)];
    return slot.step == step ? &slot.value : nullptr;
  }
  // Not held so far.
  Value& insert(std::int64_t step, const Value& value) {
    if (2 * (size_ + 1) > slots_.size()) grow();
    Slot& slot = slots_[slot_of(step)];
    slot = {step, value};
    ++size_;
    return slot.value;
  }
  // Held or not.
  void erase(std::int64_t step) {
    if (size_ == 0) return;
    const std::size_t i = slot_of(step);
    if (slots_[i].step == step) erase_slot(i);
  }
  void clear() {
    for (Slot& slot : slots_) slot.step = kNone;
    size_ = 0;
  }

  // One of those held.
  std::int64_t any() const {
    const auto held = [](const Slot& slot) { return slot.step != kNone; };
    return std::find_if(slots_.begin(), slots_.end(), held)->step;
  }

  // Over the items held in [from,to): O(the smaller of the range and the table).
  template <class Visit>
  void visit(std::int64_t from, std::int64_t to, const Visit& visit) {
    if (size_ == 0) return;
    if (shorter_than_table(from, to)) {
      for (std::int64_t step = from; step < to; ++step) {
        Slot& slot = slots_[slot_of(step)];
        if (slot.step == step) visit(step, slot.value);
      }
      return;
    }
    for (Slot& slot : slots_) {
      if (slot.step >= from && slot.step < to) visit(slot.step, slot.value);
    }
  }
  template <class Visit>
  void visit(const Visit& visit) {
    for (Slot& slot : slots_) {
      if (slot.step != kNone) visit(slot.step, slot.value);
    }
  }
  void erase(std::int64_t from, std::int64_t to) {
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

 private:
  static constexpr std::int64_t kNone = -1;
  struct Slot {
    std::int64_t step = kNone;
    Value value;
  };

  std::size_t home(std::int64_t step) const {
    // Fibonacci hashing: the upper bits of a product with 2^64 / golden ratio.
    return static_cast<std::size_t>((static_cast<std::uint64_t>(step) * 0x9E3779B97F4A7C15U) >>
                                    shift_);
  }
  // Its slot, or the empty one where it would go.
  std::size_t slot_of(std::int64_t step) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t i = home(step);
    while (slots_[i].step != step && slots_[i].step != kNone) i = (i + 1) & mask;
    return i;
  }
  bool shorter_than_table(std::int64_t from, std::int64_t to) const {
    return static_cast<std::uint64_t>(to - from) < slots_.size();
  }
  void erase_slot(std::size_t hole) {
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
  void grow() {
    const std::size_t size = std::max<std::size_t>(16, 2 * slots_.size());
    const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(size));
    shift_ = 64;
    for (std::size_t n = size; n > 1; n /= 2) --shift_;
    for (const Slot& slot : old) {
      if (slot.step != kNone) slots_[slot_of(slot.step)] = slot;
    }
  }

  std::vector<Slot> slots_;  // a power of two, at most half full
  std::size_t size_ = 0;
  int shift_ = 64;
};

}  // namespace ebb
