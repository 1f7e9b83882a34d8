// SPDX-License-Identifier: Apache-2.0
// Slot mix: equal slots that hold a state or a tape each.
//
// Maddison 2024.
// Model: uniform steps; s slots of one size; the initial state takes one while it is needed; a tape
// does not restart the step after it; the tape in use needs no slot.
//   mixed(n,s) = n                                                     if n <= s+1
//                n + mixed(n-1,s)                                      if s = 1
//                min( 1 + mixed(n-1,s-1),                              keep the first step's tape
//                     min_{2<=i<n} i + mixed(i,s) + mixed(n-i,s-1) )   keep state i
// forwards in all.
// Departs from the paper: a slot has the bytes of the larger of state and tape; chains too long for
// the table use capacities, which are good, not optimal.
#pragma once

#include "ebb/plan/draft.h"

namespace ebb {

Draft draft_mixed(const Problem& problem);
Bytes least_mixed(const Problem& problem);

}  // namespace ebb
