// SPDX-License-Identifier: Apache-2.0
// An arena: lays out blocks of any size in one range of bytes so that what fits in sum fits. It
// knows offsets only; whose bytes they are, in memory or in a file, its owner knows.
//
// Blocks fill holes near their end, else they grow from both ends towards a gap in the middle. Where
// that gap is too small the first hole that is large enough is taken, and where there is none the
// blocks are moved together. Blocks that come and go like a stack at either end never move.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "ebb/core/bytes.h"

namespace ebb {

class Arena {
 public:
  enum class End : std::uint8_t { low, high };
  using Block = std::int32_t;
  static constexpr Block kNone = -1;
  // Copies `bytes` bytes from one offset to another; the ranges may overlap. All that has to happen
  // before a block may move happens here.
  using Move = std::function<void(Block block, Bytes from, Bytes to, Bytes bytes)>;

  Arena() = default;
  Arena(Bytes size, Move move) : size_(size), move_(std::move(move)) {}

  // With no more blocks than that at a time nothing is allocated from then on.
  void reserve(std::size_t blocks);

  // A block of 1 or more bytes at the end given. Throws Error(out_of_budget) when that many are not
  // free in sum; whatever `move` throws comes through, with every block where offset() says.
  Block add(Bytes bytes, End end);
  void remove(Block block);
  // Gives back the bytes of the block from `bytes` on; 1 or more stay.
  void shrink(Block block, Bytes bytes);
  // Cuts the block at `bytes`; the rest becomes the block returned.
  Block split(Block block, Bytes bytes);

  Bytes offset(Block block) const { return at(block).offset; }
  Bytes bytes(Block block) const { return at(block).bytes; }
  Bytes size() const { return size_; }
  Bytes used() const { return used_; }
  // Bytes moved to close gaps so far.
  Bytes moved() const { return moved_; }

 private:
  struct Node {
    Bytes offset = 0, bytes = 0;
    Block before = kNone, after = kNone;  // neighbours in rising order of offsets
    End end = End::low;
  };
  Node& at(Block block) { return nodes_[static_cast<std::size_t>(block)]; }
  const Node& at(Block block) const { return nodes_[static_cast<std::size_t>(block)]; }
  Bytes end_of(Block block) const {
    return block == kNone ? 0 : at(block).offset + at(block).bytes;
  }
  Bytes start_of(Block block) const { return block == kNone ? size_ : at(block).offset; }
  // kNone: the end of all.
  Block before_of(Block block) const { return block == kNone ? last_ : at(block).before; }
  Bytes gap_before(Block block) const { return start_of(block) - end_of(before_of(block)); }
  Bytes middle() const { return start_of(high_) - end_of(low_); }

  Block fresh();
  Block insert(Block before, Block after, Bytes offset, Bytes bytes, End end);
  std::optional<Block> near_hole(Bytes bytes, End end) const;
  Block fill(Block after, Bytes bytes);
  void slide(Block block, Bytes to);
  void close_gaps();

  Bytes size_ = 0, used_ = 0, moved_ = 0;
  Move move_;
  std::vector<Node> nodes_;
  std::vector<Block> unused_;
  Block first_ = kNone, last_ = kNone;  // of all blocks
  Block low_ = kNone;                   // the last block of the low end
  Block high_ = kNone;                  // the first block of the high end
  // The block after the last one removed: often what comes next fits where that was.
  Block hole_ = kNone;
};

}  // namespace ebb
