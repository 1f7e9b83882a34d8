// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/online.h"

#include <algorithm>
#include <utility>

#include "ebb/core/error.h"
#include "ebb/plan/binomial.h"

namespace ebb {

OnlineSlots::OnlineSlots(std::int64_t slots) : slots_(slots), block_keeps_(slots) {}

std::int64_t OnlineSlots::next() const {
  if (slots_ == 1) return kUnlimited;
  if (!in_blocks() || last_ + 1 < block_begin_ + block_keeps_) return last_ + 1;
  const std::int64_t begin = block_begin_ + block_keeps_ + 1;
  // The last block is empty: one step later the blocks are over.
  return block_keeps_ > 1 ? begin : begin + 1;
}

std::optional<std::int64_t> OnlineSlots::keep() {
  const std::int64_t step = next();
  if (in_blocks() && step >= block_begin_ + block_keeps_) {
    block_begin_ += block_keeps_ + 1;
    --block_keeps_;
    leaving_.insert(leaving_.end(), block_.begin(), block_.end());
    block_.clear();
    if (!in_blocks()) {
      for (const std::int64_t kept_step : kept()) slotted_.push_back({kept_step, 0});
    }
  }
  last_ = step;
  return in_blocks() ? keep_in_block(step) : keep_by_level(step);
}

std::optional<std::int64_t> OnlineSlots::keep_in_block(std::int64_t step) {
  (step == block_begin_ ? firsts_ : block_).push_back(step);
  if (leaving_.empty()) return std::nullopt;
  const std::int64_t leaves = leaving_.back();
  leaving_.pop_back();
  return leaves;
}

// A state is dispensable when a later one has a higher level; the latest such leaves. Without one
// the last state leaves, and the new one rises above it.
std::int64_t OnlineSlots::keep_by_level(std::int64_t step) {
  auto leaves = slotted_.end() - 1;
  std::int32_t highest = leaves->level;
  while (leaves != slotted_.begin() && leaves->level >= highest) {
    highest = std::max(highest, leaves->level);
    --leaves;
  }
  std::int32_t level = 0;
  if (leaves == slotted_.begin()) {
    leaves = slotted_.end() - 1;
    level = leaves->level + 1;
  }
  const std::int64_t left = leaves->step;
  slotted_.erase(leaves);
  slotted_.push_back({step, level});
  return left;
}

std::vector<std::int64_t> OnlineSlots::kept() const {
  std::vector<std::int64_t> steps = firsts_;
  if (!slotted_.empty()) {
    steps.clear();
    for (const Slot& slot : slotted_) steps.push_back(slot.step);
    return steps;
  }
  steps.insert(steps.end(), leaving_.begin(), leaving_.end());
  steps.insert(steps.end(), block_.begin(), block_.end());
  std::sort(steps.begin(), steps.end());
  return steps;
}

namespace {

// An Advance of a sweep that keeps nothing more is cut here, so that its end can be found out.
constexpr std::int64_t kLongest = std::int64_t{1} << 20;

class OnlineCursor : public Cursor {
 public:
  OnlineCursor(std::int64_t slots, bool start_charged, std::optional<std::int64_t> steps)
      : slots_(slots), keeps_(slots), start_charged_(start_charged), steps_(steps) {}

  bool next(Action& action) override {
    for (;;) {
      if (read_ < ready_.size()) {
        action = ready_[read_++];
        return true;
      }
      ready_.clear();
      read_ = 0;
      if (inner_) {
        if (inner_->next(action)) return true;
        inner_.reset();
      }
      if (!steps_ || at_ < *steps_) {
        forward();
      } else if (!gaps_.empty() || !began_) {
        backward();
      } else {
        return false;
      }
    }
  }

  void finish(std::int64_t n) override {
    if (steps_ || n > at_ || n < from_) {
      fail(ErrorCode::invalid_argument, "finish(", n, "): ",
           steps_ ? "this plan knows its length, "
                  : "the sequence must end inside the last advance, at most at ",
           at_);
    }
    steps_ = n;
    at_ = n;
    ready_.clear();
    read_ = 0;
  }

 private:
  void forward() {
    if (at_ == 0 && start_charged_)
      ready_.push_back(Copy{Item::state, Place::work, Place::fast, 0});
    if (at_ > 0 && at_ == keep_) {
      if (const auto leaves = keeps_.keep()) {
        ready_.push_back(Drop{Item::state, Place::fast, *leaves});
      }
      ready_.push_back(Copy{Item::state, Place::work, Place::fast, at_});
    }
    keep_ = keeps_.next();
    from_ = at_;
    at_ = std::min(keep_, at_ + kLongest);
    if (steps_) at_ = std::min(at_, *steps_);
    ready_.push_back(Advance{from_, at_});
  }

  void backward() {
    if (!began_) {
      began_ = true;
      const bool swept = keep_ != 0;
      gaps_ = keeps_.kept();
      end_ = *steps_;
      while (gaps_.back() >= end_ && gaps_.size() > 1) {
        ready_.push_back(Drop{Item::state, Place::fast, gaps_.back()});
        gaps_.pop_back();
      }
      if (end_ == 0) {
        if (start_charged_ && swept) ready_.push_back(Drop{Item::state, Place::fast, 0});
        gaps_.clear();
        return;
      }
    }
    Segment gap{gaps_.back(), end_};
    gaps_.pop_back();
    gap.owned = gap.a > 0 || start_charged_;
    gap.room = slots_ - static_cast<std::int64_t>(gaps_.size());
    end_ = gap.a;
    ready_.push_back(Copy{Item::state, Place::fast, Place::work, gap.a});
    inner_ = std::make_unique<Descent>(policy_, gap);
  }

  std::int64_t slots_;
  OnlineSlots keeps_;
  bool start_charged_;
  std::optional<std::int64_t> steps_;
  std::int64_t from_ = 0, at_ = 0;
  std::int64_t keep_ = 0;  // the next state to keep; 0 before the sweep begins
  bool began_ = false;
  std::int64_t end_ = 0;
  std::vector<std::int64_t> gaps_;
  std::vector<Action> ready_;
  std::size_t read_ = 0;
  std::shared_ptr<const Policy> policy_ = std::make_shared<BinomialPolicy>(false);
  std::unique_ptr<Descent> inner_;
};

}  // namespace

Draft draft_online(const Problem& p) {
  const std::int64_t free = p.machine.start_charged ? 0 : 1;
  const std::int64_t slots = std::max<std::int64_t>(p.states_in(p.room()) + free, 1);
  const bool charged = p.machine.start_charged;
  const std::optional<std::int64_t> steps =
      p.options.length_unknown ? std::nullopt : std::optional(p.steps());
  Draft draft;
  draft.start = [slots, charged, steps] {
    return std::make_unique<OnlineCursor>(slots, charged, steps);
  };
  draft.parameters = {{"slots", slots}};
  draft.at_least = unavoidable_seconds(p.chain);
  if (p.chain.is_uniform() && p.steps() > 0) {
    draft.at_least += static_cast<double>(binomial_advances(p.steps(), slots)) * p.step.forward;
  }
  return draft;
}

Bytes least_online(const Problem& p) {
  // The sweep keeps its start before it can know that one step is all there is.
  const bool keeps = p.machine.start_charged && p.steps() > 0;
  return add_bytes(p.working(), keeps ? p.step.state : 0);
}

}  // namespace ebb
