// SPDX-License-Identifier: Apache-2.0
#include "ebb/plan/online.h"

#include <algorithm>
#include <utility>

#include "ebb/core/error.h"
#include "ebb/plan/binomial.h"

namespace ebb {

OnlineSlots::OnlineSlots(std::int64_t slots) : slots_(slots), kept_{{0, 0}} {}

OnlineSlots::Block OnlineSlots::block_of(std::int64_t step) const {
  Block block{0, slots_};
  while (block.keeps > 0 && step >= block.begin + block.keeps + 1) {
    block.begin += block.keeps + 1;
    --block.keeps;
  }
  return block;
}

std::int64_t OnlineSlots::next(std::int64_t step) const {
  if (slots_ == 1) return kUnlimited;
  const std::int64_t end = block_end();
  if (step + 1 >= end) return step + 1;
  const Block block = block_of(step + 1);
  if (step + 1 < block.begin + block.keeps) return step + 1;
  const Block after = block_of(block.begin + block.keeps + 1);
  return after.keeps > 0 ? after.begin : end;
}

std::optional<std::int64_t> OnlineSlots::keep(std::int64_t step) {
  if (static_cast<std::int64_t>(kept_.size()) < slots_) {
    kept_.push_back({step, 0});
    return std::nullopt;
  }
  auto leaves = kept_.end() - 1;
  std::int32_t level = 0;
  if (step < block_end()) {
    // Starts of blocks stay, and the block under way; the latest other state goes.
    const std::int64_t begin = block_of(step).begin;
    while (leaves->step >= begin || block_of(leaves->step).begin == leaves->step) --leaves;
  } else {
    std::int32_t highest = kept_.back().level;
    while (leaves != kept_.begin() && leaves->level >= highest) {
      highest = std::max(highest, leaves->level);
      --leaves;
    }
    if (leaves == kept_.begin()) {
      leaves = kept_.end() - 1;
      level = leaves->level + 1;
    }
  }
  const std::int64_t left = leaves->step;
  kept_.erase(leaves);
  kept_.push_back({step, level});
  return left;
}

std::vector<std::int64_t> OnlineSlots::kept() const {
  std::vector<std::int64_t> steps;
  for (const Slot& slot : kept_) steps.push_back(slot.step);
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
           steps_ ? "this plan knows its length, " : "the sequence must end inside the last advance, at most at ",
           at_);
    }
    steps_ = n;
    at_ = n;
    ready_.clear();
    read_ = 0;
  }

 private:
  void forward() {
    if (at_ == 0 && start_charged_) ready_.push_back(Copy{Item::state, Place::work, Place::fast, 0});
    if (at_ > 0 && at_ == keep_) {
      if (const auto leaves = keeps_.keep(at_)) {
        ready_.push_back(Drop{Item::state, Place::fast, *leaves});
      }
      ready_.push_back(Copy{Item::state, Place::work, Place::fast, at_});
    }
    keep_ = keeps_.next(at_);
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
