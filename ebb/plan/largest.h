// SPDX-License-Identifier: Apache-2.0
// The largest live state and scratch over a range of a chain's steps. What they are charged to is the
// caller's business.
#pragma once

#include <cstdint>
#include <vector>

#include "ebb/core/bytes.h"
#include "ebb/plan/chain.h"

namespace ebb {

class Largest {
 public:
  struct Sizes {
    Bytes live = 0, scratch = 0;
  };

  // Over [from,to), not empty; always of the same chain. O(1) for one step and for uniform chains,
  // else O(log N) after O(N) for the first range.
  Sizes over(const Chain& chain, std::int64_t from, std::int64_t to) {
    if (to - from > 1 && !chain.is_uniform()) return search(chain, from, to);
    return {chain.at(from).live_bytes(), chain.at(from).scratch};
  }

 private:
  Sizes search(const Chain& chain, std::int64_t from, std::int64_t to);
  void build(const Chain& chain);

  std::vector<Sizes> tree_;  // node i is over nodes 2i and 2i+1; the steps are the upper half
};

}  // namespace ebb
