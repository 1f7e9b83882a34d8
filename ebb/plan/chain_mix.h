// SPDX-License-Identifier: Apache-2.0
// Chain mix: a state or a tape per place, every step with its own costs and sizes.
//
// Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova 2019 (rotor); Gruslys et al. 2016 (BPTT-MSM).
// Model: the whole machine without slow tiers, memory counted as replay counts it. Three tables
// over segments [i,k) and memory m, the least seconds to reverse the segment when its start
//   free   stays in its place uncharged (the caller's, or inside a tape that is kept
//          anyway),
//   kept   lies in fast, its bytes inside m, and is dropped at its last load,
//   fresh  is live and not kept yet: kept, or never needed again.
//
//   free[i,k](m)  = min_j  f(i,j) + fresh[j,k](m) + free[i,j](m)                    keep state j
//                   min_j  f(i,j-1) + r(j-1) + free[j,k](m-tape) + free[i,j-1](m)   keep tape j-1
//   kept[i,k](m)  = the same with fresh[j,k](m-state), free[j,k](m-state-tape) and kept[..] on the
//                   left, and
//                   r(i) + free[i+1,k](m-tape)                     drop the start, keep tape i
//   fresh[i,k](m) = min( kept[i,k](m), r(i) + free[i+1,k](m-tape) )
//
// Where copies within fast memory take time, a start is loaded before whatever lies left of a cut,
// and fresh saves it to be kept.
//
// each guarded by the bytes that its advances and records hold. Dropping the start at its last load
// is what rotor and MSM do not have; on small uniform chains the result equals exhaustive search.
// Where steps differ it may miss plans that load before they reverse or that leave steps to an
// earlier state (docs/planning.md has both examples, tests/plan/optimal_chain_test.cpp the counts).
// Departs from rotor: a tape is whole in itself (it needs no input beside it); scratch and adjoints
// are charged; memory is exact while the budget is at most kUnits common units, else rounded up to
// 1/kUnits of it. Chains of more than kItems steps are cut into that many groups, which are planned
// as steps are, each group within itself in up to kItemsInside items.
#pragma once

#include "ebb/plan/draft.h"

namespace ebb {

Draft draft_chain(const Problem& problem);
Bytes least_chain(const Problem& problem);

}  // namespace ebb
