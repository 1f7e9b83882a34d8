// SPDX-License-Identifier: Apache-2.0
// Hierarchy: dynamic programmes over synchronous levels of memory.
//
// Herrmann & Pallez 2020 (H-Revolve, any number of levels); Aupy, Herrmann, Hovland, Robert 2016
// (Disk-Revolve: one slow level); Aupy & Herrmann 2017 (periodic Disk-Revolve).
// Model: uniform steps; states only; level 0 is fast, free of cost; level k >= 1 is slow tier k-1
// with its slots and its seconds to write and to read one state; transfers and compute take turns.
// l = N-1 advances at least, stored[k][m][l] is the least seconds beyond the unavoidable when the
// start lies at level k with m slots there, its own included:
//   stored[k][m][l] = min( full[k-1][l],
//                          min_{1<=j<=l} j f + unstored[k][m-1][l-j] + read_k + stored[k][m][j-1] )
//   unstored[k][m][l] = min( full[k-1][l], write_k + stored[k][m][l] )
//   full[k] = unstored[k][all slots]
// and at level 0 the closed form P(l+1,m) f. j = l covers the papers' special cases. Published
// values = ours with the N recording forwards left out.
// Departs from the papers: costs travel by name, so that forward and backward cannot be exchanged;
// level 0 is the closed form instead of a table; the caller's initial state, where it is free, is
// one more level above all others; where copies within fast memory take time, level 0 is a table
// too, with a copy as its write and its read; disk states may be read several times; a state is
// dropped at its last load; what does not fill the last period of periodic_disk may join the one
// before it. Exact while the tables have up to kTableEntries and a row takes up to kRowWork; beyond
// that nested intervals with binomial slots inside are searched instead. Copies are counted while
// that takes few entries, and then not every cut is tried.
#pragma once

#include "ebb/plan/draft.h"

namespace ebb {

// h_revolve: all tiers. disk_revolve: the first tier alone.
Draft draft_h_revolve(const Problem& problem);
Draft draft_disk_revolve(const Problem& problem);
Draft draft_periodic_disk(const Problem& problem);
Bytes least_h_revolve(const Problem& problem);
Bytes least_disk_revolve(const Problem& problem);
Bytes least_periodic_disk(const Problem& problem);

// The one-read period of Aupy & Herrmann: beta(slots,t) for the smallest t with beta(slots+1,t) >
// cost, where cost is (write + read) / forward; at most `most`.
std::int64_t disk_period(std::int64_t slots, double cost, std::int64_t most);

}  // namespace ebb
