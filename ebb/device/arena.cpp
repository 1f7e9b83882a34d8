// SPDX-License-Identifier: Apache-2.0
#include "ebb/device/arena.h"

#include "ebb/core/error.h"

namespace ebb {
namespace {

constexpr int kNear = 8;

}  // namespace

void Arena::reserve(std::size_t blocks) {
  nodes_.reserve(blocks);
  unused_.reserve(nodes_.capacity());
}

Arena::Block Arena::fresh() {
  if (!unused_.empty()) {
    const Block block = unused_.back();
    unused_.pop_back();
    return block;
  }
  nodes_.emplace_back();
  unused_.reserve(nodes_.capacity());
  return static_cast<Block>(nodes_.size()) - 1;
}

Arena::Block Arena::insert(Block before, Block after, Bytes offset, Bytes bytes, End end) {
  const Block block = fresh();
  at(block) = {offset, bytes, before, after, end};
  (before == kNone ? first_ : at(before).after) = block;
  (after == kNone ? last_ : at(after).before) = block;
  // Whoever stands next to the middle gap is the outermost of its end.
  if (end == End::low && before == low_) low_ = block;
  if (end == End::high && after == high_) high_ = block;
  used_ += bytes;
  return block;
}

Arena::Block Arena::add(Bytes bytes, End end) {
  if (bytes > size_ - used_) {
    fail(ErrorCode::out_of_budget, format_bytes(bytes), " more are needed; of ",
         format_bytes(size_), " ", format_bytes(used_), " are held");
  }
  if (const std::optional<Block> after = near_hole(bytes, end)) return fill(*after, bytes);
  if (bytes > middle()) {
    for (Block after = first_;; after = at(after).after) {
      if (gap_before(after) >= bytes) return fill(after, bytes);
      if (after == kNone) break;
    }
    close_gaps();
  }
  const Bytes offset = end == End::low ? end_of(low_) : start_of(high_) - bytes;
  return insert(low_, high_, offset, bytes, end);
}

// A hole that fits, where one was made last or among the outermost blocks of that end: filled at
// once, holes do not add up until everything has to be moved.
std::optional<Arena::Block> Arena::near_hole(Bytes bytes, End end) const {
  if (size_ - used_ - middle() < bytes) return {};
  if (hole_ != high_ && gap_before(hole_) >= bytes) return hole_;
  Block after = end == End::high ? kNone : first_;
  for (int looked_at = 0; looked_at < kNear && after != high_; ++looked_at) {
    if (gap_before(after) >= bytes) return after;
    after = end == End::high ? before_of(after) : at(after).after;
  }
  return {};
}

// Into the gap before a block.
Arena::Block Arena::fill(Block after, Bytes bytes) {
  const Block before = before_of(after);
  const End zone = after == kNone ? End::high : at(after).end;
  return insert(before, after, end_of(before), bytes, zone);
}

void Arena::remove(Block block) {
  const Node node = at(block);
  (node.before == kNone ? first_ : at(node.before).after) = node.after;
  (node.after == kNone ? last_ : at(node.after).before) = node.before;
  if (low_ == block) low_ = node.before;
  if (high_ == block) high_ = node.after;
  used_ -= node.bytes;
  hole_ = node.after;
  unused_.push_back(block);
}

void Arena::shrink(Block block, Bytes bytes) {
  used_ -= at(block).bytes - bytes;
  at(block).bytes = bytes;
}

Arena::Block Arena::split(Block block, Bytes bytes) {
  const Bytes rest = at(block).bytes - bytes;
  shrink(block, bytes);
  const Node node = at(block);
  return insert(block, node.after, node.offset + bytes, rest, node.end);
}

void Arena::slide(Block block, Bytes to) {
  Node& node = at(block);
  if (node.offset == to) return;
  move_(block, node.offset, to, node.bytes);
  node.offset = to;
  moved_ += node.bytes;
}

void Arena::close_gaps() {
  Bytes free = 0;
  for (Block block = first_; block != kNone && block != high_; block = at(block).after) {
    slide(block, free);
    free = end_of(block);
  }
  free = size_;
  for (Block block = last_; block != kNone && block != low_; block = at(block).before) {
    slide(block, free - at(block).bytes);
    free = at(block).offset;
  }
}

}  // namespace ebb
